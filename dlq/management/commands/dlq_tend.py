"""Does by hand what workers do from time to time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.cli import as_json, positive
from dlq.groups.duty import Tended, tend

_SLICE_SECONDS = 0.5


class Command(BaseCommand):
    help = (
        "Count letters in their groups, wake snoozed groups, begin replays that wait for a release, drop old "
        "figures: all that is due, as workers do. Exit code 1 when something is left."
    )
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--rounds", type=positive, help="at most so many rounds of half a second each")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        total = Tended()
        rounds = 0
        while True:
            done = tend(_SLICE_SECONDS, by_hand=True)
            total.add(done)
            rounds += 1
            if not done.more or not done.letters or rounds == options["rounds"]:
                break
            if not options["json"]:
                self.stderr.write(f"{total.letters} letters")
        if options["json"]:
            self.stdout.write(as_json(asdict(total)))
        else:
            self.stdout.write(
                f"{total.letters} letters counted, {len(total.new_groups)} new groups, "
                f"{len(total.regressed)} regressed, {total.woken} woken, {len(total.replays)} replays begun, "
                f"{total.forgotten} old figures dropped"
            )
        if total.more:
            raise CommandError("there is more to do: somebody else counts, or the rounds are over")
