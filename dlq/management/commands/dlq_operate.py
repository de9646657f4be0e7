"""Runs operations: the fast way, beside what each worker does of it."""

from __future__ import annotations

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from dlq.operations.duty import operate
from hardening.core.apps import celery_app


class Command(BaseCommand):
    help = (
        "Run operations until SIGTERM or Ctrl-C. Any number of these may run beside each other and beside "
        "workers, which do the same more slowly; killed at any moment, another goes on."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--until-idle", action="store_true", help="end when nothing is left to be sent")

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGTERM, signal.SIGINT):
                signal.signal(each, lambda *_: stop.set())
        operate(
            celery_app(),
            until_idle=options["until_idle"],
            stopped=stop.is_set,
            on_turn=lambda pk, turn: options["verbosity"] > 1 and self.stderr.write(f"{pk}: {turn}"),
        )
