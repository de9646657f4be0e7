"""Groups letters again after the way fingerprints are made has changed.

Batch by batch, each one transaction under the turn of the counters: its letters get their new fingerprint
and group, and leave the counts of the old group for those of the new one. So each letter is counted in one
group at any time, whoever dies, and whoever goes on finds only what is left to do.

What people said of a group goes with its letters. What the old group still counts in the end, of letters that
are gone, goes with the newest of its letters; then the old group is no more.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from uuid import UUID

from django.db import OperationalError
from django.db.models import Q, QuerySet

from ..conf import database_alias
from ..fingerprint import VERSION
from ..models import DeadLetter, GroupFacet, GroupHour, LetterGroup, OperationItem
from ..models.group import FACETS
from ..models.letter import FINGERPRINT_LENGTH
from ..text import clip
from .adding import add_to_rows
from .counting import COUNTING, add_counts, fingerprints_of
from .inheriting import Said, inherited
from .tally import Counts, LetterFacts, tally
from .turns import one_at_a_time, unlocked_only

__all__ = ["Regrouped", "regroup"]

_TRIES = 50
_PAUSE_SECONDS = 0.2
_SAID = tuple(field.name for field in fields(Said))


@dataclass(slots=True)
class Regrouped:
    """What one run did. `left`: letters that others held all the time."""

    letters: int = 0
    moved: int = 0
    groups: int = 0
    left: int = 0


def regroup(
    *,
    everything: bool = False,
    batch: int = 500,
    alias: str | None = None,
    after_batch: Callable[[Regrouped], None] = lambda done: None,
) -> Regrouped:
    """Compute the fingerprints of letters of another VERSION anew; `everything`: those of this one too."""
    alias = alias or database_alias()
    done = Regrouped()
    outdated = Q() if everything else ~Q(fingerprint__startswith=f"{VERSION}-")
    for ids in _uncounted(outdated, batch, alias):
        done.letters += len(ids)
        done.moved += _renamed(ids, alias)
        after_batch(done)
    groups = LetterGroup.objects.using(alias).filter(outdated).order_by("pk")
    for old in list(groups.values_list("pk", flat=True)):
        done.groups += 1
        for ids in _members(old, batch, alias):
            done.letters += len(ids)
            _persistently(lambda old=old, ids=ids: _move(old, ids, done, alias))  # type: ignore[misc]
            after_batch(done)
    return done


def _uncounted(outdated: Q, batch: int, alias: str) -> Iterator[list[UUID]]:
    letters = DeadLetter.objects.using(alias).filter(outdated, group__isnull=True).exclude(fingerprint="")
    yield from _batches(letters, batch)


def _members(group: str, batch: int, alias: str) -> Iterator[list[UUID]]:
    yield from _batches(DeadLetter.objects.using(alias).filter(group_id=group), batch)


def _batches(letters: QuerySet[DeadLetter], batch: int) -> Iterator[list[UUID]]:
    """Oldest first, each letter once, whatever happens to those that were given out."""
    after: tuple[datetime, UUID] | None = None
    while True:
        rest = letters
        if after is not None:
            rest = rest.filter(Q(failed_at__gt=after[0]) | Q(failed_at=after[0], pk__gt=after[1]))
        found = list(rest.order_by("failed_at", "pk").values_list("failed_at", "pk")[:batch])
        if not found:
            return
        after = found[-1]
        yield [pk for _, pk in found]


def _renamed(ids: Sequence[UUID], alias: str) -> int:
    """Letters that no group counts yet have nothing but their fingerprint. One that is counted meanwhile is
    among those of its group."""
    renamed = 0
    for value, same in _by_value(ids, alias).items():
        letters = DeadLetter.objects.using(alias).filter(pk__in=same, group__isnull=True)
        renamed += letters.exclude(fingerprint=value).update(fingerprint=value)
    return renamed


def _by_value(ids: Sequence[UUID], alias: str) -> dict[str, list[UUID]]:
    found: dict[str, list[UUID]] = defaultdict(list)
    for pk, fingerprint in fingerprints_of(ids, alias).items():
        found[clip(fingerprint.value, FINGERPRINT_LENGTH)].append(pk)
    return dict(sorted(found.items()))


def _persistently(step: Callable[[], bool]) -> None:
    """Until it has had its turn: workers count for milliseconds. Raises what still failed at last."""
    for tried in range(1, _TRIES + 1):
        try:
            if step():
                return
        except OperationalError:
            if tried == _TRIES:
                raise
        time.sleep(_PAUSE_SECONDS)
    raise OperationalError(f"others counted all the time, for {_TRIES * _PAUSE_SECONDS:.0f} s")


def _move(old: str, ids: Sequence[UUID], done: Regrouped, alias: str) -> bool:
    """One batch of one group, whole or not at all; False where somebody else has the turn."""
    target = {pk: value for value, same in _by_value(ids, alias).items() for pk in same}
    with one_at_a_time(COUNTING, alias=alias) as mine:
        if not mine:
            return False
        held = DeadLetter.objects.using(alias).filter(pk__in=list(target), group_id=old).order_by()
        rows = held.select_for_update(**unlocked_only(alias)).values_list(*LetterFacts._fields)
        facts = [LetterFacts(*row) for row in rows]
        left = len(ids) - len(facts)
        letters = [each._replace(fingerprint=target[each.pk]) for each in facts if target[each.pk] != old]
        if letters:
            _hand_over(old, letters, alias)
    done.moved += len(letters)
    done.left += left
    return True


def _hand_over(old: str, letters: Sequence[LetterFacts], alias: str) -> None:
    counts = tally(letters, FACETS)
    for value, members in counts.groups.items():
        ids = [each.pk for each in members]
        DeadLetter.objects.using(alias).filter(pk__in=ids).update(fingerprint=value, group_id=value)
        items = OperationItem.objects.using(alias).filter(letter_id__in=ids)
        items.exclude(fingerprint="").update(fingerprint=value)
    groups = LetterGroup.objects.using(alias)
    known = set(groups.filter(pk__in=list(counts.groups)).values_list("pk", flat=True))
    add_counts(counts, [value for value in counts.groups if value not in known], alias)
    before = groups.filter(pk=old).first()
    if before is None:
        return
    _take_away(before, tally([each._replace(fingerprint=old) for each in letters], FACETS), alias)
    for group in groups.filter(pk__in=list(counts.groups)).order_by("pk"):
        said = inherited(_said_of(before), _said_of(group), new_last_seen_at=group.last_seen_at)
        groups.filter(pk=group.pk).update(**asdict(said))
    newest = max(letters, key=lambda each: each.failed_at)
    _let_go(before, newest.fingerprint, alias)


def _said_of(group: LetterGroup) -> Said:
    return Said(**{name: getattr(group, name) for name in _SAID})


def _take_away(group: LetterGroup, gone: Counts, alias: str) -> None:
    """Nobody else writes counts: this one has the turn."""
    group.letters = max(0, group.letters - sum(gone.hours.values()))
    group.save(update_fields=["letters"], using=alias)
    hours = GroupHour.objects.using(alias).filter(group=group)
    for hour in hours.filter(hour__in=[each for _, each in gone.hours]):
        fewer = hour.letters - gone.hours[group.pk, hour.hour]
        _lessen(hour, fewer, alias)
    values = Q()
    for _, facet, value in gone.facets:
        values |= Q(facet=facet, value=value)
    for row in GroupFacet.objects.using(alias).filter(values, group=group):
        if taken := gone.facets.get((group.pk, row.facet, row.value)):
            _lessen(row, row.letters - taken[0], alias)


def _lessen(row: GroupHour | GroupFacet, letters: int, alias: str) -> None:
    if letters > 0:
        row.letters = letters
        row.save(update_fields=["letters"], using=alias)
    else:
        row.delete(using=alias)


def _let_go(old: LetterGroup, heir: str, alias: str) -> None:
    members = DeadLetter.objects.using(alias).filter(group_id=old.pk)
    if (sample := members.order_by("-failed_at", "-pk").first()) is not None:
        LetterGroup.objects.using(alias).filter(pk=old.pk).update(sample=sample)
        return
    heirs = LetterGroup.objects.using(alias).filter(pk=heir)
    for group in heirs:
        group.letters += old.letters
        group.first_seen_at = min(group.first_seen_at, old.first_seen_at)
        group.save(update_fields=["letters", "first_seen_at"], using=alias)
    hours = GroupHour.objects.using(alias).filter(group=old)
    add_to_rows(
        [GroupHour(group_id=heir, hour=each.hour, letters=each.letters) for each in hours],
        key=("group", "hour"),
        plus=("letters",),
        alias=alias,
    )
    facets = GroupFacet.objects.using(alias).filter(group=old)
    add_to_rows(
        [
            GroupFacet(
                group_id=heir,
                facet=each.facet,
                value=each.value,
                letters=each.letters,
                last_seen_at=each.last_seen_at,
            )
            for each in facets
        ],
        key=("group", "facet", "value"),
        plus=("letters",),
        greatest=("last_seen_at",),
        alias=alias,
    )
    LetterGroup.objects.using(alias).filter(pk=old.pk).delete()
