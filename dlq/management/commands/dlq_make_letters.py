"""Fills a store with made-up letters."""

from __future__ import annotations

import secrets
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from dlq.cli import as_json, positive
from dlq.specimens.making import has_real_letters, make_letters
from dlq.specimens.population import MOST_CAUSES


class Command(BaseCommand):
    help = (
        "Fill the store with made-up letters, counted in their groups: to try pages, commands and replays at "
        "the size of a large installation. Their tasks and queues begin with made-up, so that no worker runs "
        "one by mistake. Refused where letters of real tasks are."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--letters", type=positive, default=100_000, help="how many (default: 100000)")
        parser.add_argument("--groups", type=positive, default=2_000, help="causes they have (default: 2000)")
        parser.add_argument("--days", type=positive, default=30, help="spread over so many (default: 30)")
        parser.add_argument(
            "--seed", type=int, help="makes the same letters again (default: another each time)"
        )
        parser.add_argument("--beside-real", action="store_true", help="also where real letters are")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        letters, groups = options["letters"], min(options["groups"], options["letters"])
        if groups > MOST_CAUSES:
            raise CommandError(f"there are no more than {MOST_CAUSES} groups to make")
        if not options["beside_real"] and has_real_letters():
            raise CommandError(
                "the store holds letters of real tasks: made-up ones among them would be in everybody's way. "
                "Take another database, or say --beside-real."
            )
        seed = secrets.randbelow(2**31) if options["seed"] is None else options["seed"]
        began = time.monotonic()
        made = make_letters(
            letters,
            groups,
            seed=seed,
            days=options["days"],
            done=lambda number: options["verbosity"] and self.stderr.write(f"{number:,} of {letters:,}"),
        )
        seconds = round(time.monotonic() - began, 1)
        if options["json"]:
            self.stdout.write(as_json({"letters": made, "groups": groups, "seed": seed, "seconds": seconds}))
        else:
            self.stdout.write(f"{made:,} letters of {groups:,} causes in {seconds} s, seed {seed}")
