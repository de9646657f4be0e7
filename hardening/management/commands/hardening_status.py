"""Prints what is in force: settings, tasks with their resolved policy, opt-outs with reasons."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from hardening.core.apps import NoCeleryApp, celery_app
from hardening.status import status_of


class Command(BaseCommand):
    """`manage.py hardening_status [--json]`."""

    help = "Show the delivery policy that is in force for each setting and task."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            app = celery_app()
        except NoCeleryApp as exc:
            raise CommandError(str(exc)) from exc
        app.loader.import_default_modules()
        status = status_of(app)
        if options["json"]:
            self.stdout.write(json.dumps(status, indent=2, default=str))
            return
        self.stdout.write(f"app {status['app']}   mode {status['mode']}   broker {status['broker']}")
        self.stdout.write(f"dead letters go to {status['sink']}\n\nSettings")
        for row in status["settings"]:
            self.stdout.write(f"  {row['name']:<50} {row['value']!r:<12} set by {row['set_by']}")
        self.stdout.write("\nTasks")
        for task in status["tasks"]:
            acks = "late ack" if task["acks_late"] else "EARLY ACK"
            limit = task["time_limit"] or task["soft_time_limit"]
            self.stdout.write(
                f"  {task['name']:<50} {acks:<10} limit {f'{limit} s' if limit else 'none':<8} "
                f"retries {task['max_retries']}"
            )
            if task["opt_out"]:
                self.stdout.write(f"    opted out: {task['opt_out']}")
        self.stdout.write(f"\nFindings: {len(status['findings'])}")
        for finding in status["findings"]:
            self.stdout.write(f"  {finding['level'].upper()} {finding['code']}: {finding['what']}")
            self.stdout.write(f"      remedy: {finding['remedy']}")
