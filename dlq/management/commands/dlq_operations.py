"""Lists operations, shows one, and approves, starts, pauses, resumes or cancels it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.cli import as_json, operator, positive
from dlq.conf import database_alias
from dlq.errors import OwnApproval
from dlq.models import Operation, OperationEvent, OperationItem
from dlq.operations import control
from dlq.operations.cli import as_data, operation_of, told
from dlq.operations.progress import Progress, progress_of

_CHANGES: Mapping[str, Callable[..., bool]] = {
    "start": control.start,
    "approve": control.approve,
    "pause": control.pause,
    "resume": control.resume,
    "cancel": control.cancel,
}


class Command(BaseCommand):
    help = (
        "Replays and copies as operations. Exit code 1 when the operation is not in a state to be changed so."
    )
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        listed = actions.add_parser("list", help="the newest first")
        listed.add_argument("--state", help="only those in this state")
        listed.add_argument("--limit", type=positive, default=20, help="at most so many (default: 20)")
        listed.add_argument("--json", action="store_true", help="print one JSON array")
        shown = actions.add_parser("show", help="one, with its audit trail")
        shown.add_argument("id", metavar="ID")
        shown.add_argument("--items", action="store_true", help="also each letter, and what became of it")
        shown.add_argument("--json", action="store_true", help="print one JSON object")
        for name in _CHANGES:
            changed = actions.add_parser(name)
            changed.add_argument("id", metavar="ID")
            changed.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "list":
            self._list(options)
        elif options["action"] == "show":
            self._show(options)
        else:
            self._change(options)

    def _list(self, options: dict[str, Any]) -> None:
        rows = Operation.objects.using(database_alias()).all()
        if options["state"]:
            rows = rows.filter(state=options["state"])
        found = list(rows[: options["limit"]])
        how_far = progress_of([row.pk for row in found])
        if options["json"]:
            listed = [as_data(row, how_far.get(row.pk, Progress())) for row in found]
            self.stdout.write(as_json(listed))
            return
        for row in found:
            done = how_far.get(row.pk, Progress())
            self.stdout.write(
                f"{row.pk}  {row.state:<10} {row.created_at.isoformat()}  {row.kind}  {row.created_by}  "
                f"{done.percent} % of {row.total}"
            )
        self.stderr.write(f"{len(found)} operations")

    def _show(self, options: dict[str, Any]) -> None:
        operation = operation_of(options["id"])
        alias = database_alias()
        events = OperationEvent.objects.using(alias).filter(operation_id=operation.pk)
        trail = list(events.values("at", "by", "what", "detail"))
        items = OperationItem.objects.using(alias).filter(operation_id=operation.pk).order_by("position")
        columns = ("letter_id", "state", "verdict", "error", "task_id", "new_letter_id", "same_cause")
        if options["json"]:
            data = as_data(operation, progress_of([operation.pk]).get(operation.pk, Progress()))
            data["events"] = trail
            if options["items"]:
                data["items"] = list(items.values(*columns))
            self.stdout.write(as_json(data))
            return
        told(self, operation.pk, as_data=False)
        for event in trail:
            self.stdout.write(f"{event['at'].isoformat()}  {event['what']} by {event['by']}")
        if options["items"]:
            for item in items.values_list(*columns).iterator():
                self.stdout.write("  ".join(str(value) for value in item if value not in (None, "")))

    def _change(self, options: dict[str, Any]) -> None:
        operation = operation_of(options["id"])
        try:
            changed = _CHANGES[options["action"]](operation.pk, by=operator())
        except OwnApproval as exc:
            raise CommandError(str(exc)) from exc
        told(self, operation.pk, as_data=options["json"])
        if not changed:
            raise CommandError(f"it is not in a state for {options['action']}: nothing was changed")
