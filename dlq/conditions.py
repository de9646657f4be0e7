"""What people are told of dead letters: conditions for `hardening.core.alerts`, with thresholds in
DLQ["ALERTS"].

Each look is one or two statements that an index bounds, on a connection that waits for nothing long; the
database is asked by one process of the fleet at a time. A look that cannot know raises: nothing is opened or
resolved then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import wraps
from typing import Any

from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.timesince import timesince

from hardening.core.alerts import Condition, Fact, Severity
from hardening.core.apps import celery_app
from hardening.core.broker import confirming_connection
from hardening.core.parking import parking_queue

from .ages import age_text
from .brief import slice_connection
from .conf import database_alias, dlq_settings
from .groups.states import GroupState
from .models import DeadLetter, LetterGroup, Operation
from .operations.states import OperationState, PausedBecause
from .size import store_size
from .states import State

__all__ = ["conditions"]

_MOST = 25
_SAMPLE = 200
_NOT_THERE = "404"


def conditions() -> tuple[Condition, ...]:
    """All of dlq's; each is asked even where its threshold is None, and finds nothing then."""
    stuck = dlq_settings().thresholds.ingest_stuck_minutes or 0.0
    error, warning = Severity.ERROR, Severity.WARNING
    return (
        Condition(name="dlq.new_group", severity=warning, every_seconds=10.0, look=_brief(_new_groups)),
        Condition(name="dlq.regressed_group", severity=error, every_seconds=10.0, look=_brief(_regressed)),
        Condition(
            # Resolved only when it was calm for longer than the rate is taken over.
            name="dlq.growth",
            severity=error,
            every_seconds=10.0,
            gone_seconds=300.0,
            look=_brief(_growth),
        ),
        Condition(name="dlq.oldest_open", severity=warning, every_seconds=60.0, look=_brief(_oldest)),
        Condition(name="dlq.store_size", severity=error, every_seconds=60.0, look=_brief(_size)),
        Condition(name="dlq.replay_paused", severity=error, every_seconds=10.0, look=_brief(_paused)),
        Condition(
            name="dlq.ingest_stuck",
            severity=error,
            every_seconds=20.0,
            hold_seconds=stuck * 60.0,
            look=_stuck,
        ),
    )


def _brief(look: Callable[[str], Iterable[Fact]]) -> Callable[[], list[Fact]]:
    @wraps(look)
    def asked() -> list[Fact]:
        alias = database_alias()
        with slice_connection(alias):
            return list(look(alias))

    return asked


def _new_groups(alias: str) -> Iterator[Fact]:
    minutes = dlq_settings().thresholds.new_group_minutes
    if minutes is None:
        return
    since = timezone.now() - timedelta(minutes=minutes)
    groups = LetterGroup.objects.using(alias).filter(
        # Nobody has said anything of it, and it was not asleep: what is opened again is not new.
        state=GroupState.OPEN,
        state_by="",
        state_since__gte=since,
        first_seen_at__gte=since,
        last_seen_at__gte=since,
    )
    for group in groups.order_by("-last_seen_at").defer("note")[:_MOST]:
        yield Fact(
            group.pk,
            f"new dead letters: {_titled(group)}",
            _about(group),
            _page("lettergroup_change", group.pk),
        )


def _regressed(alias: str) -> Iterator[Fact]:
    if not dlq_settings().thresholds.regressed_groups:
        return
    groups = LetterGroup.objects.using(alias).filter(state=GroupState.REGRESSED)
    for group in groups.order_by("-last_seen_at").defer("note")[:_MOST]:
        yield Fact(
            group.pk,
            f"resolved, and back: {_titled(group)}",
            _about(group),
            _page("lettergroup_change", group.pk),
        )


def _growth(alias: str) -> Iterator[Fact]:
    told = dlq_settings().thresholds
    if told.growth_per_minute is None:
        return
    window = timedelta(minutes=told.growth_window_minutes)
    most = max(1, int(told.growth_per_minute * told.growth_window_minutes))
    now = timezone.now()
    recent = DeadLetter.objects.using(alias).filter(failed_at__gt=now - window, failed_at__lte=now)
    # Counted no further than it matters.
    if recent.order_by()[: most + 1].count() <= most:
        return
    tasks = Counter(recent.order_by("-failed_at").values_list("task_name", flat=True)[:_SAMPLE])
    shares = ", ".join(f"{task} {100 * count // tasks.total()} %" for task, count in tasks.most_common(3))
    yield Fact(
        "letters",
        f"more than {told.growth_per_minute:g} dead letters a minute, over {age_text(window)}",
        f"of the newest {tasks.total()}: {shares}",
        _page("deadletter_changelist"),
    )


def _oldest(alias: str) -> Iterator[Fact]:
    days = dlq_settings().thresholds.oldest_open_days
    if days is None:
        return
    oldest = (
        DeadLetter.objects.using(alias)
        .filter(state=State.OPEN)
        .order_by("failed_at")
        .only("task_name", "failed_at")
        .first()
    )
    if oldest is not None and oldest.failed_at < timezone.now() - timedelta(days=days):
        age = timesince(oldest.failed_at, depth=1)
        yield Fact(
            "oldest",
            f"an open dead letter is older than {days:g} days",
            f"{oldest.task_name} failed {age} ago, and nobody has decided on it",
            _page("deadletter_change", oldest.pk),
        )


def _size(alias: str) -> Iterator[Fact]:
    told = dlq_settings().thresholds
    if told.store_megabytes is None and told.store_letters is None:
        return
    size = store_size(alias)
    remedy = 'set DLQ["RETENTION"], or delete what is done with: manage.py dlq_purge'
    if size.bytes is not None:
        megabytes = size.bytes / 1e6
        if told.store_megabytes is not None and megabytes > told.store_megabytes:
            yield Fact(
                "store",
                f"the store of dead letters is larger than {told.store_megabytes:g} MB",
                f"{megabytes:,.0f} MB: {remedy}",
            )
    elif size.letters is not None and told.store_letters is not None and size.letters > told.store_letters:
        yield Fact(
            "store",
            f"the store holds more than {told.store_letters:,} dead letters",
            f"about {size.letters:,}: {remedy}",
        )


def _paused(alias: str) -> Iterator[Fact]:
    if not dlq_settings().thresholds.replay_paused:
        return
    paused = (
        Operation.objects.using(alias)
        .filter(state=OperationState.PAUSED)
        .exclude(paused_because=PausedBecause.PERSON)
    )
    for operation in paused.order_by("-created_at")[:_MOST]:
        yield Fact(
            str(operation.pk),
            f"a replay of {operation.total} letters paused by itself: {operation.paused_because}",
            operation.pause_detail,
            _page("operation_change", operation.pk),
        )


def _stuck() -> Iterator[Fact]:
    if dlq_settings().thresholds.ingest_stuck_minutes is None:
        return
    queue = parking_queue()
    with confirming_connection(celery_app()) as connection:
        count = _length(connection, queue)
    if count:
        yield Fact(
            queue,
            f"dead letters lie on the broker in {queue}, and nobody takes them in",
            f"{count} letter(s): is the database away, or does no worker run? "
            "manage.py dlq_ingest takes them in",
        )


def _length(connection: Any, queue: str) -> int:
    with connection.channel() as channel:
        try:
            return int(channel.queue_declare(queue=queue, passive=True).message_count)
        except connection.channel_errors as exc:
            if str(getattr(exc, "reply_code", "")) == _NOT_THERE:
                return 0
            raise


def _titled(group: LetterGroup) -> str:
    return f"{group} - {group.title}" if group.title else str(group)


def _about(group: LetterGroup) -> str:
    return (
        f"{group.letters} letter(s), the last one {timesince(group.last_seen_at, depth=1)} ago; {group.place}"
    )


def _page(name: str, *args: Any) -> str:
    # Workers may have no URLs of the site, and projects no admin.
    try:
        return reverse(f"admin:dlq_{name}", args=args)
    except (NoReverseMatch, ImportError, AttributeError):
        return ""
