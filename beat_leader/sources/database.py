"""Schedules that are kept in the tables of django-celery-beat, with those of the code written there."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil
from typing import Any, NamedTuple, TypeVar

from celery import Celery
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, connections, router, transaction
from django.db.models import CharField, ExpressionWrapper, F, Q
from django.utils import timezone
from django_celery_beat.models import PeriodicTask, PeriodicTasks

from hardening.core.connection import KeptConnection, bounded_connection

from ..clock import steady
from ..due import BadSchedule, zone_of
from ..entry import Entry, SourceUnavailable
from ..policies import Policies, current_policies
from .code import declared
from .installing import KEPT_OPTIONS, can_be_kept, install
from .rows import COLUMNS, HISTORY, ID, NAME, WHEN, entry_of, is_zone_aware, when_of
from .telling import Broken

__all__ = ["DatabaseSource"]

logger = logging.getLogger("beat_leader")

T = TypeVar("T")

_SECONDS = 5
_BROKEN_SECONDS = 1.0
"""An error that comes later is of a database that does not answer."""

_AT_ONCE = 500

_Row = tuple[Any, ...]


class _Looked(NamedTuple):
    """One reading of the tables."""

    change: Any
    """When django-celery-beat noted a change last."""

    rows: list[_Row]
    names: set[str]
    """Of those of the code that have a row, enabled or not."""

    histories: dict[int, tuple[Any, Any]]


class DatabaseSource:
    """All rows that are enabled, however far their next due time is.

    Rows are compared with those of the last reading: an entry of one that says the same is the same object,
    except that its anchor is of when it was made.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._broken = Broken()
        self._read: dict[str, tuple[_Row, Entry, Entry]] = {}
        self._whens: dict[_Row, Any] = {}
        self._policies: Policies | None = None
        self._change: Any = None
        self._leads = False
        self._kept = KeptConnection(_SECONDS)
        self._opened = False
        self._failed: dict[str, str] = {}

    @property
    def broken(self) -> Mapping[str, str]:
        """Those that the last reading left out, and why."""
        return self._broken.all

    def install(self) -> None:
        """Write what the code says, and disable what is over. Raises SourceUnavailable."""
        self._leads = True
        wanted = [entry for entry in declared(self._app)[0].values() if can_be_kept(entry)]
        present: dict[str, Entry | None] = {}

        def write() -> None:
            rows = self._rows(Q(name__in=[entry.name for entry in wanted])) if wanted else []
            for row in rows:
                present[row[NAME]] = self._entry(row, {}, {})
            self._failed = install(self._app, wanted, present, zone_of(self._app))
            over = Q(one_off=True, total_run_count__gt=0) | Q(expires__lte=_moment(_now()))
            self._disable(over)

        self._asked(write)

    def entries(self) -> Mapping[str, Entry]:
        """All that are enabled, and those of the code that no row can say."""
        code, broken = declared(self._app)
        looked = self._asked(lambda: self._look(code))
        policies = current_policies()
        found = self._taken(looked, code, policies, broken)
        self._change = looked.change
        for name, entry in code.items():
            unsaid = name not in looked.names or (name in broken and name not in found)
            if unsaid and (name in self._failed or not can_be_kept(entry)):
                found[name] = replace(entry, policy=policies.of(name))
                broken.pop(name, None)
        self._broken.are(broken)
        return found

    def changed(self) -> bool:
        """Whether django-celery-beat noted a change. One that nobody notes is found by reading afresh."""
        try:
            return bool(self._asked(_last_change) != self._change)
        except SourceUnavailable:
            return False

    def ran(self, runs: Mapping[str, tuple[float, int]]) -> None:
        """Last run, to the next whole second, and count; disables what was to run once, and what is over."""
        if not runs:
            return
        try:
            self._asked(lambda: self._note(runs))
        except SourceUnavailable as exc:
            logger.warning("django-celery-beat is not told of %d runs: %s", len(runs), exc)

    def close(self) -> None:
        """Leave no connection open. It may be used again."""
        self._kept.close()
        self._opened = False

    def _look(self, code: Mapping[str, Entry]) -> _Looked:
        # Before the rows: what changes in between is a change after this reading.
        change = _last_change()
        rows = self._rows(Q(enabled=True) & ~Q(one_off=True, total_run_count__gt=0))
        known = set(_tasks().filter(name__in=set(code)).values_list("name", flat=True)) if code else set()
        return _Looked(change, rows, known, self._histories(rows))

    def _histories(self, rows: Iterable[_Row]) -> dict[int, tuple[Any, Any]]:
        ids = [row[ID] for row in rows if row[NAME] not in self._read or self._read[row[NAME]][0] != row]
        found = _tasks().filter(enabled=True) if len(ids) > _AT_ONCE else _tasks().filter(id__in=ids)
        return {each: tuple(said) for each, *said in found.values_list("id", *HISTORY)} if ids else {}

    def _rows(self, which: Q) -> list[_Row]:
        # The name of the zone as it stands there: one that does not exist is its own row's matter alone.
        zone = ExpressionWrapper(F("crontab__timezone"), output_field=CharField())
        return list(_tasks().filter(which).annotate(zone=zone).values_list(*COLUMNS))

    def _taken(
        self, looked: _Looked, code: Mapping[str, Entry], policies: Policies, broken: dict[str, str]
    ) -> dict[str, Entry]:
        same_policies = policies is self._policies
        read: dict[str, tuple[_Row, Entry, Entry]] = {}
        whens: dict[_Row, Any] = {}
        for row in looked.rows:
            name = row[NAME]
            known = self._read.get(name)
            if known is not None and known[0] == row:
                _, plain, entry = known
                whens[row[WHEN]] = plain.when
                if not same_policies and policies.of(name) != entry.policy:
                    entry = replace(plain, policy=policies.of(name))
            else:
                made = self._entry(row, broken, whens, looked.histories.get(row[ID]))
                if made is None:
                    continue
                plain = _with_code(made, code.get(name))
                entry = replace(plain, policy=policies.of(name))
            read[name] = (row, plain, entry)
        self._read, self._whens, self._policies = read, whens, policies
        return {name: entry for name, (_, _, entry) in read.items()}

    def _entry(
        self,
        row: _Row,
        broken: dict[str, str],
        whens: dict[_Row, Any],
        history: tuple[Any, Any] | None = None,
    ) -> Entry | None:
        part = row[WHEN]
        try:
            when = whens[part] = whens.get(part) or self._whens.get(part) or when_of(part, self._app)
            return entry_of(row, when, history)
        except Exception as exc:
            # Whatever somebody typed into a row: it is one schedule's matter.
            broken[row[NAME]] = _why(exc)
            return None

    def _note(self, runs: Mapping[str, tuple[float, int]]) -> None:
        with transaction.atomic(using=_alias()):
            self._note_all(runs)

    def _note_all(self, runs: Mapping[str, tuple[float, int]]) -> None:
        alike: dict[tuple[int, int], list[str]] = defaultdict(list)
        for name, (when, count) in runs.items():
            alike[ceil(when), count].append(name)
        for (second, count), names in alike.items():
            for some in _portions(names):
                _tasks().filter(name__in=some).update(
                    last_run_at=_moment_of_run(second), total_run_count=F("total_run_count") + count
                )
        once = [name for name in runs if name in self._read and self._read[name][1].one_off]
        latest = max(when for when, _ in runs.values())
        for some in _portions(once):
            self._disable(Q(name__in=some, one_off=True))
        self._disable(Q(expires__lte=_moment(latest)))

    def _disable(self, which: Q) -> None:
        # As django-celery-beat does it: enabled again, it begins anew.
        over = _tasks().filter(which, enabled=True)
        if over.update(enabled=False, total_run_count=0, last_run_at=None):
            PeriodicTasks.update_changed()

    def _asked(self, question: Callable[[], T]) -> T:
        """Asked a second time at once if a connection that was kept turns out to be broken."""
        began, was_kept = steady(), self._opened
        try:
            return self._asked_once(question)
        except SourceUnavailable:
            if not was_kept or steady() - began > _BROKEN_SECONDS:
                raise
            return self._asked_once(question)

    def _asked_once(self, question: Callable[[], T]) -> T:
        try:
            with self._connected():
                self._opened = self._leads
                return question()
        except (DatabaseError, InterfaceError, ImproperlyConfigured, OSError) as exc:
            self.close()
            raise SourceUnavailable(f"the tables of django-celery-beat: {type(exc).__name__}: {exc}") from exc

    @contextmanager
    def _connected(self) -> Iterator[None]:
        alias = _alias()
        # A Beat keeps one; a page that looks uses its own.
        with (
            self._kept.in_place(alias) if self._leads else nullcontext(),
            bounded_connection(alias, _SECONDS),
        ):
            connections[alias].ensure_connection()
            yield


def _alias() -> str:
    # Not that for reading: a replica would show the schedules of some time ago.
    return str(router.db_for_write(PeriodicTask))


def _tasks() -> Any:
    return PeriodicTask.objects.using(_alias())


def _last_change() -> Any:
    changes = PeriodicTasks.objects.using(_alias())
    return changes.filter(ident=1).values_list("last_update", flat=True).first()


def _with_code(entry: Entry, code: Entry | None) -> Entry:
    """With the options that a row has no column for, from the code's schedule of that name."""
    more = {} if code is None else {k: v for k, v in code.options.items() if k not in KEPT_OPTIONS}
    return replace(entry, options={**more, **entry.options}) if more else entry


def _why(exc: Exception) -> str:
    if isinstance(exc, BadSchedule):
        return exc.why
    return str(exc) if type(exc) is ValueError else f"{type(exc).__name__}: {exc}"


def _portions(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _AT_ONCE):
        yield names[start : start + _AT_ONCE]


def _now() -> float:
    return timezone.now().timestamp()


def _moment(stamp: float) -> datetime:
    aware = datetime.fromtimestamp(stamp, UTC)
    return aware if settings.USE_TZ else timezone.make_naive(aware)


def _moment_of_run(stamp: float) -> datetime:
    if not settings.USE_TZ and not is_zone_aware():
        return datetime.fromtimestamp(stamp, UTC).replace(tzinfo=None)
    return _moment(stamp)
