"""Which releases have run, and what waits for one: groups to wake, groups to replay.

That a release has run is a row that a worker of it wrote (`SeenRelease`): it outlives the worker. What is
imported from elsewhere or only named in a letter proves nothing of the workers here.

A replay that waits for a release becomes one operation for each time that a person resolved the group so. The
flag on the group is taken down by compare-and-set in the transaction that makes the operation: both happen or
neither, and of two who try one finds the flag gone. A group that regressed meanwhile, was reopened or was
resolved in another release is not replayed: then the flag is down, or it is that of the other release.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Max, Q
from django.utils import timezone

from hardening.core.release import running_release

from ..conf import database_alias
from ..models import NAME_LENGTH, DeadLetter, GroupFacet, LetterGroup, SeenRelease
from ..states import State
from ..text import clip
from .figures import open_counts
from .settling import HEARD_EVERY, has_settled
from .states import GroupState
from .turns import unlocked_only

if TYPE_CHECKING:
    from ..models import Operation

__all__ = [
    "MOST_IN_A_TURN",
    "has_run",
    "known_releases",
    "note_release",
    "ran_at",
    "replay_due",
    "running_release",
    "runs_of",
    "settle_releases",
    "wake_snoozed",
]


MOST_IN_A_TURN = 5_000
"""Letters that a worker makes an operation of in its turn: some tenths of a second of the database's time."""

_told_too_large: set[tuple[str, datetime]] = set()

_log = logging.getLogger(__name__)


def note_release(release: str, *, now: datetime | None = None) -> None:
    """A worker of this release runs. Cheap to say again: it is written every HEARD_EVERY at most."""
    release = clip(release, NAME_LENGTH)
    if not release:
        return
    now = now or timezone.now()
    seen = SeenRelease.objects.using(database_alias()).filter(pk=release)
    if not seen.filter(last_at__gt=now - HEARD_EVERY).exists() and not seen.update(last_at=now):
        SeenRelease.objects.using(database_alias()).bulk_create(
            [SeenRelease(name=release, first_at=now, last_at=now)], ignore_conflicts=True
        )
    settle_releases(now=now)


def settle_releases(*, now: datetime | None = None) -> int:
    """Say of the releases that count as running by now that they do; returns of how many."""
    now = now or timezone.now()
    releases = SeenRelease.objects.using(database_alias())
    settled = 0
    for each in releases.filter(settled_at__isnull=True):
        others = releases.exclude(pk=each.pk).aggregate(last=Max("last_at"))["last"]
        if has_settled(first_at=each.first_at, others_last_at=others, now=now):
            settled += releases.filter(pk=each.pk, settled_at__isnull=True).update(settled_at=now)
    return settled


def ran_at(release: str) -> datetime | None:
    """Since when this release counts as having run; None: it has not."""
    return runs_of([release], alias=database_alias()).get(release)


def has_run(release: str) -> bool:
    """Whether it has."""
    return ran_at(release) is not None


def runs_of(releases: Iterable[str], *, alias: str) -> dict[str, datetime]:
    """Those of these that have run, and since when."""
    named = sorted({each for each in releases if each})
    if not named:
        return {}
    runs = SeenRelease.objects.using(alias).filter(pk__in=named, settled_at__isnull=False)
    return {name: moment for name, moment in runs.values_list("pk", "settled_at") if moment is not None}


def known_releases(limit: int = 50) -> list[str]:
    """Those that workers told, the newest first, and then those that only letters name."""
    alias = database_alias()
    told = SeenRelease.objects.using(alias).order_by("-first_at").values_list("pk", flat=True)[:limit]
    named = (
        GroupFacet.objects.using(alias)
        .filter(facet="release")
        .exclude(value="")
        .values_list("value")
        .annotate(last=Max("last_seen_at"))
        .order_by("-last")[:limit]
    )
    return list(dict.fromkeys([*told, *(value for value, _last in named)]))[:limit]


def wake_snoozed(*, now: datetime | None = None) -> int:
    """Open the groups whose time is over, or whose release has run; returns how many."""
    now = now or timezone.now()
    alias = database_alias()
    groups = LetterGroup.objects.using(alias).filter(state=GroupState.SNOOZED)
    awaited = groups.exclude(snoozed_release="").values_list("snoozed_release", flat=True).distinct()
    runs = runs_of(awaited, alias=alias)
    over = groups.filter(Q(snoozed_until__lte=now) | Q(snoozed_release__in=list(runs)))
    # Asked first: most of the time there is none, and a write makes others wait on SQLite.
    if not over.exists():
        return 0
    with transaction.atomic(using=alias):
        if unlocked := unlocked_only(alias):
            over = over.filter(pk__in=list(over.select_for_update(**unlocked).values_list("pk", flat=True)))
        return over.update(
            state=GroupState.OPEN, state_since=now, state_by="", snoozed_until=None, snoozed_release=""
        )


def replay_due(
    *, make: Callable[[LetterGroup], Operation] | None = None, most: int | None = None
) -> list[Operation]:
    """Replay the groups that waited for a release that has run; returns the operations that were made.

    `most`: leave out groups with more open letters than that, and say so in the log, once.
    """
    alias = database_alias()
    waiting = LetterGroup.objects.using(alias).filter(state=GroupState.RESOLVED, replay_on_release=True)
    awaited = waiting.values_list("resolved_release", flat=True).distinct()
    made = []
    for release in runs_of(awaited, alias=alias):
        due = waiting.filter(resolved_release=release).order_by("pk")
        for group in due:
            if most is not None and open_counts([group.pk], cap=most)[group.pk] > most:
                _tell_too_large(group)
                continue
            operation = _replay_once(group, make or _make, alias)
            if operation is not None:
                made.append(operation)
    return made


def _tell_too_large(group: LetterGroup) -> None:
    said = (group.pk, group.state_since)
    if said in _told_too_large:
        return
    _told_too_large.add(said)
    _log.warning(
        "the replay of group %s, which waited for release %s, is too large for a worker's turn; "
        "manage.py dlq_operate begins it, or dlq_tend",
        group.pk,
        group.resolved_release,
        extra={"group": group.pk, "release": group.resolved_release},
    )


def _replay_once(
    group: LetterGroup, make: Callable[[LetterGroup], Operation], alias: str
) -> Operation | None:
    with transaction.atomic(using=alias):
        mine = LetterGroup.objects.using(alias).filter(
            pk=group.pk,
            state=GroupState.RESOLVED,
            state_since=group.state_since,
            resolved_release=group.resolved_release,
            replay_on_release=True,
        )
        # Whoever holds it may be making the operation: nobody waits for that.
        held = mine.select_for_update(**unlocked_only(alias))
        if unlocked_only(alias) and not held.exists():
            return None
        return make(group) if mine.update(replay_on_release=False) else None


def _make(group: LetterGroup) -> Operation:
    # Late: operations import groups' models, and nothing else here needs them.
    from ..operations.control import start
    from ..operations.making import make_operation

    operation: Operation = make_operation(
        letters=DeadLetter.objects.using(database_alias()).filter(group_id=group.pk, state=State.OPEN),
        by=group.state_by,
        why=f"the group was resolved in release {group.resolved_release}, which runs now",
        source={"kind": "release", "fingerprint": group.pk, "release": group.resolved_release},
    )
    start(operation.pk, by=group.state_by)
    return operation
