"""Sends dead letters again: at once, or as an operation with a pace that pauses when it fails."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.cli import add_filters, add_selection, as_json, ids_of, operator, selection_of, summary_of_skipped
from dlq.errors import NotRerun, UnknownQueue
from dlq.lookup import letters_of
from dlq.models import Operation
from dlq.operations.chord_rerun import find_chord, make_chord_operation
from dlq.operations.cli import follow, percent, told
from dlq.operations.control import start
from dlq.operations.examine import examine
from dlq.operations.making import make_operation
from dlq.operations.pace import parse_pace
from dlq.operations.states import Kind
from dlq.repairing import add_repair, repair_of
from dlq.replay import replay

_OF_OPERATIONS = ("pace", "pause_above", "copy", "plan", "wait")


class Command(BaseCommand):
    help = (
        "Send dead letters again. With --pace, --copy, --plan or --wait it is an operation, which workers "
        "and dlq_operate run; else they are sent at once. Exit code 1 when one could not be sent, an id does "
        "not exist, or, with --wait, not all succeeded."
    )
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add_selection(parser)
        add_filters(parser, queue="--from-queue")
        parser.add_argument("--queue", help="send them to this queue instead of where they came from")
        parser.add_argument(
            "--force-queue", action="store_true", help="also to a queue that the Celery app does not know"
        )
        parser.add_argument("--why", default="", help="the reason, for the record")
        parser.add_argument(
            "--over-limit", action="store_true", help='also what was replayed DLQ["REPLAY_LIMIT"] times'
        )
        parser.add_argument("--copy", action="store_true", help="send copies with keys of their own")
        parser.add_argument(
            "--pace",
            help="rate:50 (a second), share:20 (percent of the drain rate), ramp, ramp:1,5,25, unlimited",
        )
        parser.add_argument(
            "--pause-above",
            type=percent,
            metavar="PERCENT",
            help="pause when more of what was sent failed again (default: 10; 100: never, nor for its cause)",
        )
        parser.add_argument(
            "--plan", action="store_true", help="make the operation and count verdicts; nothing is sent"
        )
        parser.add_argument(
            "--wait", action="store_true", help="run the operation here, and follow it to its outcomes"
        )
        parser.add_argument(
            "--chord",
            action="store_true",
            help="re-run the whole chord that this one letter is a member of; --plan shows what is found",
        )
        add_repair(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["chord"]:
            self._rerun(options)
            return
        if any(options[name] not in (None, False) for name in _OF_OPERATIONS):
            self._operate(options)
            return
        ids = ids_of(options)
        repair = repair_of(options)
        if repair is not None and len(ids) != 1:
            raise CommandError("a repaired message is that of one letter: give one id")
        try:
            outcome = replay(
                ids,
                repair=repair,
                by=operator(),
                queue=options["queue"],
                force_queue=options["force_queue"],
                dry_run=options["dry_run"],
                over_limit=options["over_limit"],
                why=options["why"],
            )
        except UnknownQueue as exc:
            raise CommandError(f"{exc}. To send there all the same: --force-queue") from exc
        if options["json"]:
            self.stdout.write(as_json(outcome.as_dict()))
        else:
            verb = "would be sent" if outcome.dry_run else "sent"
            self.stdout.write(f"{len(outcome.sent)} {verb}")
            if outcome.skipped:
                self.stdout.write(f"skipped: {summary_of_skipped(outcome.skipped)}")
            for letter_id, error in outcome.failed.items():
                self.stderr.write(f"{letter_id}: {error}")
        if outcome.failed or outcome.skipped.get("missing"):
            raise CommandError(f"{len(ids) - len(outcome.sent)} of {len(ids)} letters were not sent")

    def _rerun(self, options: dict[str, Any]) -> None:
        refused = ("pace", "pause_above", "copy", "queue", "dry_run")
        if any(options[name] not in (None, False) for name in refused) or repair_of(options) is not None:
            raise CommandError("--chord goes with --plan, --wait, --why, --over-limit and --json alone")
        ids = ids_of(options)
        letter = letters_of(ids).first() if len(ids) == 1 else None
        if letter is None:
            raise CommandError("--chord takes the id of one letter that exists")
        if options["plan"]:
            found = find_chord(letter, over_limit=options["over_limit"])
            if options["json"]:
                self.stdout.write(as_json(found.as_dict()))
            else:
                self.stdout.write(f"{found.body}: {found.summary}; nothing is sent yet")
            if found.problem:
                raise CommandError(found.problem)
            return
        try:
            operation = make_chord_operation(
                letter, by=operator(), why=options["why"], over_limit=options["over_limit"]
            )
        except NotRerun as exc:
            raise CommandError(str(exc)) from exc
        start(operation.pk, by=operator())
        if options["wait"]:
            follow(self, operation.pk, as_data=options["json"])
            return
        told(self, operation.pk, as_data=options["json"])

    def _operate(self, options: dict[str, Any]) -> None:
        if repair_of(options) is not None:
            raise CommandError(
                "a repaired message is sent at once: without --pace, --copy, --plan and --wait"
            )
        if options["dry_run"]:
            raise CommandError("--plan is the dry run of an operation; --dry-run is that of sending at once")
        operation = self._made(options)
        if options["plan"]:
            found = examine(operation.pk)
            if options["json"]:
                self.stdout.write(as_json({"operation": str(operation.pk), **found.as_dict()}))
            else:
                self.stdout.write(f"operation {operation.pk}: {operation.total} letters, nothing is sent yet")
                self.stdout.write(summary_of_skipped(found.counts) or "nothing to be sent")
                self.stdout.write(f"to start it: manage.py dlq_operations start {operation.pk}")
            return
        start(operation.pk, by=operator())
        if options["wait"]:
            follow(self, operation.pk, as_data=options["json"])
            return
        told(self, operation.pk, as_data=options["json"])

    def _made(self, options: dict[str, Any]) -> Operation:
        selection = selection_of(options)
        never = options["pause_above"] == 100
        letters: Any
        source: dict[str, Any]
        if options["ids"]:
            letters, source = ids_of(options), {"kind": "selection"}
        else:
            if selection.is_empty and not options["all"]:
                raise CommandError("nothing selected: give ids or filters, or --all for every open letter")
            letters = selection.letters().open()
            source = {"kind": "filter", "lookups": selection.filters()}
            if set(selection.filters()) == {"fingerprint"}:
                source = {"kind": "group", "fingerprint": selection.group}
        try:
            return make_operation(
                letters=letters,
                by=operator(),
                kind=Kind.COPY if options["copy"] else Kind.REPLAY,
                source=source,
                why=options["why"],
                queue=options["queue"],
                force_queue=options["force_queue"],
                pace=parse_pace(options["pace"] or "ramp"),
                pause_above_percent=10 if options["pause_above"] is None else options["pause_above"],
                pause_on_same_cause=not never,
                limit=options["limit"],
                over_limit=options["over_limit"],
            )
        except UnknownQueue as exc:
            raise CommandError(f"{exc}. To send there all the same: --force-queue") from exc
        except ValueError as exc:
            raise CommandError(str(exc)) from exc
