"""Fills a store with made-up letters, counted in their groups. For trials, and not for production."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from random import Random

from django.db import transaction
from django.utils import timezone

from ..conf import database_alias, dlq_settings
from ..groups.counting import COUNTING, add_counts
from ..groups.states import GroupState
from ..groups.tally import LetterFacts, tally
from ..groups.turns import one_at_a_time
from ..models import Attempt, DeadLetter, LetterGroup
from ..models.group import FACETS
from .letters import MARK, WHO, Specimen, Template, specimen, template_of
from .population import causes, failures, sizes
from .writing import write_rows

__all__ = ["has_real_letters", "make_letters"]

_LETTERS_A_TRANSACTION = 50_000
_LETTERS_AT_ONCE = 5_000
_TURN_PAUSE_SECONDS = 0.1
_SNOOZED_FOR = timedelta(days=7)
_STATES = tuple(GroupState)
_SHARES = (60, 15, 5, 15, 5)


def has_real_letters() -> bool:
    """Whether a letter is there that was not made here. Reads all of them where there is none."""
    letters = DeadLetter.objects.using(database_alias()).order_by()
    return letters.exclude(delivery_key__startswith=MARK).exists()


def make_letters(
    letters: int,
    groups: int,
    *,
    seed: int,
    days: float = 30.0,
    until: datetime | None = None,
    done: Callable[[int], object] = lambda _number: None,
) -> int:
    """Returns how many there are now. `done` is told after each transaction.

    The same seed makes the same letters, at other times: a store has room for each seed once.
    """
    now = until or timezone.now()
    random = Random(seed)
    alias = database_alias()
    keys = dlq_settings().encryption_keys
    templates = [template_of(cause, now=now) for cause in causes(groups, random)]
    states = {each.row.fingerprint: random.choices(_STATES, _SHARES)[0] for each in templates}
    moments = failures(sizes(letters, groups), until=now, days=days, random=random)
    made = 0
    while True:
        with transaction.atomic(using=alias):
            facts: list[LetterFacts] = []
            for _ in range(_LETTERS_A_TRANSACTION // _LETTERS_AT_ONCE):
                part = [
                    (
                        templates[cause],
                        specimen(templates[cause], at=at, random=random, keys=keys, newest=now),
                    )
                    for at, cause in islice(moments, _LETTERS_AT_ONCE)
                ]
                _write(part, alias)
                facts += [each.facts for _, each in part]
            if not facts:
                return made
            _count(facts, states, now, alias)
        made += len(facts)
        done(made)


def _write(part: Sequence[tuple[Template, Specimen]], alias: str) -> None:
    write_rows(DeadLetter, ((template.row, each.letter) for template, each in part), alias=alias)
    blank = Attempt()
    write_rows(Attempt, ((blank, attempt) for _, each in part for attempt in each.attempts), alias=alias)


def _count(facts: Iterable[LetterFacts], states: dict[str, GroupState], now: datetime, alias: str) -> None:
    """As `groups.counting` does, and under its turn. Each group gets its state once, out of `states`."""
    counts = tally(facts, FACETS)
    _wait_for_turn(alias)
    new = {fingerprint: states.pop(fingerprint) for fingerprint in counts.groups if fingerprint in states}
    add_counts(counts, list(new), alias)
    for state in set(new.values()) - {GroupState.OPEN}:
        these = [fingerprint for fingerprint, given in new.items() if given is state]
        LetterGroup.objects.using(alias).filter(pk__in=these).update(
            state=state,
            state_by="" if state is GroupState.REGRESSED else WHO,
            snoozed_until=now + _SNOOZED_FOR if state is GroupState.SNOOZED else None,
        )


def _wait_for_turn(alias: str) -> None:
    """Ours until the transaction around ends."""
    while True:
        with one_at_a_time(COUNTING, alias=alias) as mine:
            if mine:
                return
        time.sleep(_TURN_PAUSE_SECONDS)
