"""Asks the leading Beat to resign: another takes over, as for a deploy or a host that is to be emptied."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from beat_leader.choice import chosen_lock, chosen_register
from beat_leader.lock import LockUnavailable
from beat_leader.ticks import TicksUnavailable
from hardening.core.commands import app_with_tasks, operator


class Command(BaseCommand):
    help = "Ask the Beat that leads to resign within seconds. Exit code 1 if nobody leads."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--by", default="", help="who asks (default: the user of this command)")

    def handle(self, *args: Any, **options: Any) -> None:
        app = app_with_tasks()
        try:
            standing = chosen_lock(app).look()
            if not standing.holder:
                raise CommandError("nobody leads")
            chosen_register(app).ask_to_resign(standing.epoch, options["by"] or operator())
        except (LockUnavailable, TicksUnavailable) as exc:
            raise CommandError(str(exc), returncode=2) from exc
        self.stdout.write(f"{standing.holder} was asked to resign from the term of epoch {standing.epoch}")
