"""Lists the error classes that no rule knows."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from dlq.cli import as_json
from dlq.unclassified import UnclassifiedClass, unclassified


class Command(BaseCommand):
    help = "List the error classes of open letters that no rule knows, and the settings that name them."
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        found = unclassified()
        if options["json"]:
            classes = [_plain(each) for each in found.classes]
            self.stdout.write(as_json({"classes": classes, "more": found.more, "snippet": found.snippet}))
            return
        for each in found.classes:
            self.stdout.write(_line(each))
        if found.classes:
            self.stdout.write(f"\n{found.snippet}")
        self.stderr.write(f"{len(found.classes)} error classes{', and others' if found.more else ''}")


def _plain(each: UnclassifiedClass) -> dict[str, Any]:
    return {
        "error_class": each.error_class,
        "letters": each.letters,
        "tasks": list(each.tasks),
        "more_tasks": each.more_tasks,
        "first_seen_at": each.first_seen_at.isoformat(),
        "last_failed_at": each.last_failed_at.isoformat(),
        "snippet": each.snippet,
        "explain": each.explain,
    }


def _line(each: UnclassifiedClass) -> str:
    tasks = [_shown(task) for task in each.tasks] + (
        [f"and {each.more_tasks} others"] * bool(each.more_tasks)
    )
    return (
        f"{each.letters} letters  {each.first_seen_at.isoformat()}  {each.last_failed_at.isoformat()}  "
        f"{_shown(each.error_class)}  {', '.join(tasks)}"
    )


def _shown(name: str) -> str:
    # From a message: what is not printable may be a command to the terminal.
    return name if name.isprintable() else repr(name)
