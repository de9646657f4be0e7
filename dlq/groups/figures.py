"""Figures of groups: trends, facets, other groupings. Reads what was counted, and never all letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connections
from django.db.models import Count, Max, Q, QuerySet, Sum
from django.utils import timezone

from ..conf import database_alias
from ..models import DeadLetter, DeadLetterQuerySet, GroupFacet, GroupHour, LetterGroup
from ..models.group import FACETS
from ..states import State
from .states import GroupState
from .tally import hour_of

__all__ = [
    "OPEN_CAP",
    "ORDERS",
    "TODO",
    "FacetRow",
    "FacetValue",
    "Grouping",
    "Trend",
    "by_facet",
    "facets",
    "is_behind",
    "listed",
    "newest_letters",
    "open_counts",
    "shown_count",
    "totals",
    "trends",
]

OPEN_CAP = 10_000
TODO = "todo"
ORDERS = {
    "last": ("-last_seen_at", "fingerprint"),
    "first": ("-first_seen_at", "fingerprint"),
    "letters": ("-letters", "fingerprint"),
    "task": ("task_name", "-last_seen_at", "fingerprint"),
}
_STATES = {TODO: [GroupState.OPEN, GroupState.REGRESSED]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Letters that failed, by hour of a day and by day of a week, oldest first; the last ones still run."""

    day: tuple[int, ...] = (0,) * 24
    week: tuple[int, ...] = (0,) * 7

    @property
    def last_24_hours(self) -> int:
        """In the running hour and the 23 before it."""
        return sum(self.day)

    @property
    def last_7_days(self) -> int:
        """In seven times 24 hours, likewise."""
        return sum(self.week)


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetValue:
    """One value of a facet within a group."""

    value: str
    letters: int
    last_seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetRow:
    """One value of a facet over many groups. `todo`: of these, those that are open or regressed.

    Letters that are open now are not counted: no index bounds that.
    """

    value: str
    letters: int
    groups: int
    todo: int
    last_seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Letters by a facet, those with the most first; `more`: there are other values."""

    facet: str
    rows: tuple[FacetRow, ...]
    more: bool


def listed(
    *, state: str | None = None, task: str | None = None, owner: str | None = None, order: str = "last"
) -> QuerySet[LetterGroup]:
    """Groups for a page: slice it. `state`: a GroupState, TODO for open and regressed, or empty for all."""
    groups = LetterGroup.objects.using(database_alias()).order_by(*ORDERS[order]).defer("note")
    if state:
        groups = groups.filter(state__in=_STATES.get(state, [state]))
    if task:
        groups = groups.filter(task_name=task)
    if owner:
        groups = groups.filter(owner=owner)
    return groups


def totals() -> dict[str, int]:
    """How many groups are in each state."""
    groups = LetterGroup.objects.using(database_alias()).order_by().values_list("state")
    return {state.value: 0 for state in GroupState} | dict(groups.annotate(groups=Count("pk")))


def newest_letters(fingerprint: str, *, most: int = 20) -> DeadLetterQuerySet:
    """The newest letters of a group, without their payload."""
    letters: DeadLetterQuerySet = DeadLetter.objects.using(database_alias()).filter(group_id=fingerprint)
    return letters.defer("sealed").order_by("-failed_at")[:most]


def is_behind() -> bool:
    """Whether letters wait to be counted."""
    return DeadLetter.objects.using(database_alias()).filter(group__isnull=True).exists()


def trends(fingerprints: Iterable[str], *, now: datetime | None = None) -> dict[str, Trend]:
    """The trend of each group, in one query."""
    wanted = sorted(set(fingerprints))
    this_hour = hour_of(now or timezone.now())
    first = this_hour - timedelta(hours=7 * 24 - 1)
    hours: dict[str, list[int]] = {each: [0] * (7 * 24) for each in wanted}
    rows = GroupHour.objects.using(database_alias()).filter(
        group_id__in=wanted, hour__gte=first, hour__lte=this_hour
    )
    for group, hour, letters in rows.values_list("group_id", "hour", "letters"):
        hours[group][int((hour - first).total_seconds() // 3600)] += letters
    return {
        group: Trend(day=tuple(each[-24:]), week=tuple(sum(each[at : at + 24]) for at in range(0, 168, 24)))
        for group, each in hours.items()
    }


def facets(fingerprint: str, *, most: int = 20) -> dict[str, list[FacetValue]]:
    """The values of each facet of a group, those with the most letters first."""
    found: dict[str, list[FacetValue]] = {facet: [] for facet in FACETS}
    rows = GroupFacet.objects.using(database_alias()).filter(group_id=fingerprint)
    # A group has few values of most facets; of workers it may have very many.
    for facet, value, letters, last in rows.order_by("-letters", "value").values_list(
        "facet", "value", "letters", "last_seen_at"
    )[: most * len(FACETS) * 5]:
        values = found.setdefault(facet, [])
        if len(values) < most:
            values.append(FacetValue(value=value, letters=letters, last_seen_at=last))
    return found


def by_facet(facet: str, *, groups: QuerySet[LetterGroup] | None = None, most: int = 100) -> Grouping:
    """All that was counted, by the values of one facet; `groups`: of these only. Raises ValueError."""
    if facet not in FACETS:
        raise ValueError(f"{facet!r} is none of: {', '.join(FACETS)}")
    rows = GroupFacet.objects.using(database_alias()).filter(facet=facet)
    if groups is not None:
        rows = rows.filter(group_id__in=groups.order_by().values("pk"))
    sums = (
        rows.order_by()
        .values_list("value")
        .annotate(
            total=Sum("letters"),
            groups=Count("pk"),
            todo=Count("pk", filter=Q(group__state__in=_STATES[TODO])),
            last=Max("last_seen_at"),
        )
        .order_by("-total", "value")[: most + 1]
    )
    found = [
        FacetRow(value=value, letters=letters, groups=count, todo=todo, last_seen_at=last)
        for value, letters, count, todo, last in sums
    ]
    return Grouping(facet=facet, rows=tuple(found[:most]), more=len(found) > most)


def open_counts(fingerprints: Iterable[str], *, cap: int = OPEN_CAP) -> dict[str, int]:
    """How many letters of each group are open, in one query; cap + 1 means more than `cap`."""
    wanted: Sequence[str] = sorted(set(fingerprints))
    if not wanted:
        return {}
    alias = database_alias()
    connection = connections[alias]
    quote = connection.ops.quote_name
    table = quote(DeadLetter._meta.db_table)
    # One limited look into the index for each, all in one statement; the ORM has no LIMIT within a UNION.
    one = (
        f"SELECT %s, (SELECT COUNT(*) FROM (SELECT 1 FROM {table} "  # noqa: S608 - names of columns
        f"WHERE {quote('group_id')} = %s AND {quote('state')} = %s LIMIT %s) letters)"
    )
    counts: dict[str, int] = {}
    with connection.cursor() as cursor:
        # SQLite joins no more than 500.
        for start in range(0, len(wanted), 250):
            part = wanted[start : start + 250]
            parameters = [
                each
                for number, value in enumerate(part, start)
                for each in (number, value, State.OPEN.value, cap + 1)
            ]
            cursor.execute(" UNION ALL ".join([one] * len(part)), parameters)
            counts |= {wanted[int(number)]: count for number, count in cursor.fetchall()}
    return counts


def shown_count(count: int, *, cap: int = OPEN_CAP) -> str:
    """`10,000+` for what was not counted to its end."""
    return f"{cap:,}+" if count > cap else f"{count:,}"
