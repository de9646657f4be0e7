"""Counts new letters in their groups: each once, whoever dies, however many count.

The argument. A letter is counted if and only if its `group_id` is set: one transaction sets it for a batch of
letters and adds exactly these letters to the counts. It commits whole or not at all, so a counter that dies
leaves its batch as it was, and who tries again finds it uncounted. A letter never waits for this: its capture
writes it without a group.

No letter is counted by two at once, for two reasons, each enough. There is one counter at a time: the
transaction begins by locking a row (`turns`), and whoever finds it locked goes away. And the letters
themselves are locked, and looked at under the lock: of those that somebody counted meanwhile, `group_id` is
not NULL any more. On PostgreSQL and MariaDB a locking read sees what is committed now; where a stricter
isolation level forbids that, the database refuses the transaction and nothing was counted. SQLite has no such
locks and needs none: the transaction writes before it reads, also where DATABASES does not ask for IMMEDIATE
ones, and from then on it is the only writer, and reads what the last one left. The number of rows that got
their group is compared with the number that is added; if they differ, everything is rolled back.

Counts are added by the database (`letters = letters + n`), never written over. Rows of groups, hours and
facets are inserted by counters only.

It waits for nobody. Letters and groups that others hold are left out (SKIP LOCKED) until the next time, and
those that hold them (a replay, a person who says something of a group) find them held for some milliseconds.
So there is no circle of waiting either. A lock that is waited for all the same, or SQLite's one, ends the
attempt after the connection's time-out, which `duty` makes short.

The newest are counted first: what fails now is seen now, also while a million older ones wait to be counted
after an upgrade. Letters that have no fingerprint yet get it beforehand, a few each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from ..conf import database_alias, dlq_settings
from ..fingerprint import Fingerprint, fingerprint_of
from ..models import NAME_LENGTH, Attempt, DeadLetter, GroupFacet, GroupHour, LetterGroup
from ..models.group import FACETS
from ..models.letter import FINGERPRINT_LENGTH
from ..text import clip
from .adding import add_to_rows
from .releases import runs_of
from .resolution import Resolution
from .states import GroupState, after_new_letter
from .tally import Counts, LetterFacts, tally
from .turns import one_at_a_time, unlocked_only

__all__ = [
    "COUNTING",
    "NOTHING",
    "Counted",
    "add_counts",
    "count_new_letters",
    "fingerprints_of",
    "give_fingerprints",
]

COUNTING = "counting"
"""The turn under which rows of groups, hours and facets are inserted and removed."""

_MOST_NEW_GROUPS = 100
_MOST_FINGERPRINTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What one transaction counted. `more`: there may be letters left to count."""

    letters: int = 0
    new_groups: tuple[str, ...] = ()
    regressed: tuple[str, ...] = ()
    more: bool = False
    busy: bool = False
    """Somebody else is counting."""


NOTHING = Counted()


def count_new_letters(limit: int = 1000, *, alias: str | None = None) -> Counted:
    """Count up to `limit` letters, the newest first. Without any it costs one short query."""
    alias = alias or database_alias()
    waiting = _waiting(limit, alias)
    if not waiting:
        return NOTHING
    unnamed = [pk for pk, fingerprint in waiting if not fingerprint]
    if unnamed:
        give_fingerprints(unnamed[:_MOST_FINGERPRINTS], alias=alias)
    with one_at_a_time(COUNTING, alias=alias) as mine:
        if not mine:
            return Counted(more=True, busy=True)
        named = {pk for pk, fingerprint in waiting if fingerprint} | set(unnamed[:_MOST_FINGERPRINTS])
        counted = _count(named, alias)
    return Counted(
        letters=counted.letters,
        new_groups=counted.new_groups,
        regressed=counted.regressed,
        more=len(waiting) == limit or counted.letters < len(waiting),
    )


def give_fingerprints(ids: Sequence[UUID], *, alias: str) -> int:
    """Compute the fingerprint of letters from before there were any. Whoever does it writes the same."""
    letters = DeadLetter.objects.using(alias).filter(pk__in=ids, fingerprint="")
    found = fingerprints_of(letters.values_list("pk", flat=True), alias)
    by_value: dict[str, list[UUID]] = {}
    for pk, fingerprint in found.items():
        by_value.setdefault(fingerprint.value, []).append(pk)
    given = 0
    for value, same in sorted(by_value.items()):
        given += letters.filter(pk__in=same).update(fingerprint=clip(value, FINGERPRINT_LENGTH))
    return given


def _waiting(limit: int, alias: str) -> list[tuple[UUID, str]]:
    # By the index of (group, failed_at), backwards: PostgreSQL needs the group named in the order as well.
    uncounted = DeadLetter.objects.using(alias).filter(group__isnull=True)
    return list(uncounted.order_by("-group_id", "-failed_at").values_list("pk", "fingerprint")[:limit])


def _count(ids: Iterable[UUID], alias: str) -> Counted:
    """Within the transaction."""
    letters = _held_letters(ids, alias)
    groups, blocked = _held_groups({letter.fingerprint for letter in letters}, alias)
    letters, new = _countable(letters, groups, blocked)
    if not letters:
        return NOTHING
    counts = tally(letters, FACETS)
    moved = (
        DeadLetter.objects.using(alias)
        .filter(pk__in=[letter.pk for letter in letters], group__isnull=True)
        .update(group_id=F("fingerprint"))
    )
    if moved != len(letters):
        raise RuntimeError(f"of {len(letters)} letters that were held, {moved} got their group")
    add_counts(counts, new, alias)
    return Counted(
        letters=len(letters), new_groups=tuple(new), regressed=_regress(groups.values(), counts, alias)
    )


def _held_letters(ids: Iterable[UUID], alias: str) -> list[LetterFacts]:
    letters = DeadLetter.objects.using(alias).filter(pk__in=list(ids), group__isnull=True)
    rows = letters.exclude(fingerprint="").order_by().select_for_update(**unlocked_only(alias))
    return [LetterFacts(*row) for row in rows.values_list(*LetterFacts._fields)]


def _held_groups(fingerprints: set[str], alias: str) -> tuple[dict[str, LetterGroup], set[str]]:
    """The groups that are there, locked; and those that somebody else holds."""
    groups = LetterGroup.objects.using(alias).filter(pk__in=sorted(fingerprints)).order_by("pk")
    known = set(groups.values_list("pk", flat=True))
    held = groups.select_for_update(**unlocked_only(alias)).only(
        "fingerprint", "state", "state_since", "resolved_release"
    )
    found = {group.pk: group for group in held}
    return found, known - found.keys()


def _countable(
    letters: list[LetterFacts], groups: Mapping[str, LetterGroup], blocked: set[str]
) -> tuple[list[LetterFacts], list[str]]:
    """Without those of groups that are held, and of all but the first _MOST_NEW_GROUPS that are new."""
    unknown = {letter.fingerprint: None for letter in letters if letter.fingerprint not in groups}
    new = [each for each in unknown if each not in blocked][:_MOST_NEW_GROUPS]
    wanted = groups.keys() | set(new)
    return [letter for letter in letters if letter.fingerprint in wanted], new


def add_counts(counts: Counts, new: Sequence[str], alias: str) -> None:
    """Add to the rows, within a transaction that has the turn. `new`: groups that have no row yet."""
    named = fingerprints_of([counts.groups[each][0].pk for each in new], alias)
    now = timezone.now()
    add_to_rows(
        [_group_row(letters, named.get(letters[0].pk), now) for letters in counts.groups.values()],
        key=("fingerprint",),
        plus=("letters",),
        least=("first_seen_at",),
        greatest=("last_seen_at",),
        of_latest={"sample": "last_seen_at"},
        alias=alias,
    )
    add_to_rows(
        [GroupHour(group_id=group, hour=hour, letters=n) for (group, hour), n in counts.hours.items()],
        key=("group", "hour"),
        plus=("letters",),
        alias=alias,
    )
    add_to_rows(
        [
            GroupFacet(group_id=group, facet=facet, value=value, letters=n, last_seen_at=last)
            for (group, facet, value), (n, last) in counts.facets.items()
        ],
        key=("group", "facet", "value"),
        plus=("letters",),
        greatest=("last_seen_at",),
        alias=alias,
    )


def _group_row(letters: Sequence[LetterFacts], named: Fingerprint | None, now: datetime) -> LetterGroup:
    newest, oldest = letters[0], letters[-1]
    return LetterGroup(
        fingerprint=newest.fingerprint,
        task_name=newest.task_name,
        error_class=newest.error_class,
        reason=newest.reason,
        title=clip(named.title, NAME_LENGTH) if named else "",
        place=clip(named.place, NAME_LENGTH) if named else "",
        letters=len(letters),
        first_seen_at=oldest.failed_at,
        last_seen_at=newest.failed_at,
        sample_id=newest.pk,
        state_since=now,
    )


def _regress(groups: Iterable[LetterGroup], counts: Counts, alias: str) -> tuple[str, ...]:
    resolved = [group for group in groups if group.state == GroupState.RESOLVED]
    runs = runs_of({group.resolved_release for group in resolved}, alias=alias)
    regressed = []
    for group in resolved:
        resolution = Resolution(
            at=group.state_since, release=group.resolved_release, ran_at=runs.get(group.resolved_release)
        )
        counts_against = any(
            resolution.is_contradicted_by(failed_at=letter.failed_at, release=letter.release)
            for letter in counts.groups.get(group.pk, ())
        )
        if after_new_letter(GroupState.RESOLVED, counts=counts_against) is GroupState.REGRESSED:
            regressed.append(group.pk)
    if regressed:
        LetterGroup.objects.using(alias).filter(pk__in=regressed, state=GroupState.RESOLVED).update(
            state=GroupState.REGRESSED, state_since=timezone.now(), state_by="", replay_on_release=False
        )
    return tuple(regressed)


def fingerprints_of(ids: Iterable[UUID], alias: str) -> dict[UUID, Fingerprint]:
    """Computed anew, from what is stored of each letter and its last attempt."""
    letters = {
        pk: facts
        for pk, *facts in DeadLetter.objects.using(alias)
        .filter(pk__in=list(ids))
        .values_list("pk", "task_name", "reason", "error_class", "error_message")
    }
    attempts = Attempt.objects.using(alias).filter(letter_id__in=list(letters)).order_by("number")
    # Of several attempts the last one stays.
    tracebacks: dict[UUID, str] = dict(attempts.values_list("letter_id", "traceback"))
    packages = dlq_settings().project_packages
    return {
        pk: fingerprint_of(
            task_name=task_name,
            reason=reason,
            error_class=error_class,
            message=message,
            traceback=tracebacks.get(pk, ""),
            packages=packages,
        )
        for pk, (task_name, reason, error_class, message) in letters.items()
    }
