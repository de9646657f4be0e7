"""Deletes closed letters for good."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from dlq.ages import age_of
from dlq.cli import add_filters, add_selection, as_json, given_ids, operator, selection_of, summary_of_skipped
from dlq.errors import WrongCount
from dlq.models import DeadLetterQuerySet
from dlq.purging import PurgeOutcome, purge, to_be_purged
from dlq.states import CLOSED


class Command(BaseCommand):
    help = (
        "Delete discarded and replayed letters for good: their messages are gone then. It takes --confirm "
        "with the number of letters; --dry-run tells it. Exit code 1 when it is another number, or an id "
        "does not exist."
    )
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add_selection(parser, every="every closed letter")
        add_filters(parser)
        parser.add_argument("--state", choices=[state.value for state in CLOSED], help="of these only")
        parser.add_argument("--older-than", metavar="AGE", help='closed before that, as "90 d"')
        parser.add_argument("--confirm", type=int, metavar="N", help="how many letters will be deleted")

    def handle(self, *args: Any, **options: Any) -> None:
        letters = self._letters(options)
        if options["dry_run"]:
            count = to_be_purged(letters)
            shown = {"would_be_purged": count, "dry_run": True}
            self.stdout.write(as_json(shown) if options["json"] else f"{count} would be deleted for good")
            return
        if options["confirm"] is None:
            count = to_be_purged(letters)
            raise CommandError(
                f"{count} letters would be deleted for good; to do it, add --confirm {count}; "
                "nothing was deleted"
            )
        quiet = options["json"] or options["verbosity"] < 1
        try:
            outcome = purge(
                letters,
                by=operator(),
                confirm_count=options["confirm"],
                on_batch=lambda done: None if quiet else self.stderr.write(f"{done} of {options['confirm']}"),
            )
        except WrongCount as exc:
            raise CommandError(
                f"{exc.expected} letters would be deleted for good, not {options['confirm']}; "
                "nothing was deleted"
            ) from exc
        self._report(outcome, as_data=options["json"])

    def _report(self, outcome: PurgeOutcome, *, as_data: bool) -> None:
        if as_data:
            self.stdout.write(as_json(outcome.as_dict()))
        else:
            self.stdout.write(f"{outcome.purged} deleted for good")
            if outcome.skipped:
                self.stdout.write(f"skipped: {summary_of_skipped(outcome.skipped)}")
        if outcome.skipped.get("missing"):
            raise CommandError(f"{outcome.skipped['missing']} ids do not exist")

    def _letters(self, options: dict[str, Any]) -> DeadLetterQuerySet | Sequence[UUID]:
        age = self._age(options)
        chosen = given_ids({**options, "all": options["all"] or age is not None})
        if chosen is not None:
            if age is not None:
                raise CommandError("give ids, or filters and --older-than: not both")
            return chosen
        if options["limit"] is not None:
            raise CommandError("--limit is not for this: what is deleted must be said exactly")
        letters = selection_of(options).letters()
        return letters if age is None else letters.filter(closed_at__lt=timezone.now() - age)

    def _age(self, options: dict[str, Any]) -> timedelta | None:
        try:
            return None if options["older_than"] is None else age_of(options["older_than"])
        except ValueError as exc:
            raise CommandError(str(exc)) from exc
