"""One Beat at work: what a tick does as a standby and as the leader.

A new term begins with what source and store say now; so does the same one after a request that the store did
not answer, which may have been done or not. Of what was known before, only how far schedules were is used,
and only where the store forgot it. A store that forgot while this one leads is told again with each full
reading.

A leader that could not do its work for as long as a lease gives it back: another one may be able to.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import tzinfo
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from uuid import uuid4

from celery import Celery

from .agenda import Agenda, Changes, Line
from .almanac import Almanac
from .choice import chosen_lock, chosen_register, chosen_ticks
from .clock import ClockUnknown, StoreClock, steady
from .conf import BeatSettings, beat_settings
from .dispatch import Dispatch, Job
from .due import BadSchedule
from .elector import Elector
from .entry import Entry, Source, SourceUnavailable
from .heartbeat import Heartbeat, heartbeat_path
from .pings import Pings
from .register import Register, Role, Sign
from .rereading import Rereading
from .sources import chosen_source
from .term import Term
from .ticks import Decision, OldEpoch, State, TickStore, TicksUnavailable

__all__ = ["Beating", "holder_name"]

logger = logging.getLogger("beat_leader")

_HOST = socket.gethostname()
_STANDBY_SECONDS = 0.5
_IDLE_SECONDS = 0.5
_MOST_AT_ONCE = 200
_SENDING_SECONDS = 0.4
_LOOK_SECONDS = 1.0
_TELL_SECONDS = 1.0
_PRUNE_SECONDS = 60.0
_PRUNE_AT_ONCE = 500
_DAY_MS = 86_400_000
_AGAIN_MS = 1000
_MOST_TOLD = 5
_WAITING = (TicksUnavailable, SourceUnavailable, ClockUnknown)
"""What passes: the next tick tries again."""


class Beating:
    """Used by the thread that ticks only."""

    def __init__(
        self,
        *,
        holder: str,
        elector: Elector,
        ticks: TickStore,
        register: Register,
        source: Source,
        clock: StoreClock,
        settings: BeatSettings,
        publish: Callable[[Job], None],
        zone: tzinfo,
    ) -> None:
        self._holder = holder
        self._elector = elector
        self._ticks = ticks
        self._register = register
        self._heartbeat = Heartbeat(register, heartbeat_path(settings.heartbeat_file))
        self._source = source
        self._rereading = Rereading(source)
        self._clock = clock
        self._settings = settings
        self._almanac = Almanac(zone)
        self._agenda = Agenda(self._almanac)
        self._dispatch = Dispatch(ticks, publish, now_ms=self._now_ms)
        self._pings = Pings(
            ticks, url=settings.ping, every_seconds=settings.ping_seconds, now_ms=self._now_ms
        )
        self._epoch = 0
        """Of the term whose agenda is in memory; 0: it is to be read afresh."""

        self._refused_epoch = 0
        self._first_sent = 0
        """The latest term that is known to have sent something."""

        self._problem = ""
        self._broken = ""
        self._read_at = self._looked_at = self._told_at = self._prune_at = self._compared_at = 0.0
        self._ours_at: float | None = None
        """When it led, or saw that nobody else has led since; None: somebody may have."""

        self._unable_since: float | None = None
        self._started = time.time()

    @classmethod
    def of(cls, app: Celery, publish: Callable[[Job], None]) -> Beating:
        """With what the settings name."""
        settings = beat_settings()
        clock = StoreClock()
        ticks, register = chosen_ticks(app), chosen_register(app)
        holder = holder_name()
        elector = Elector(
            chosen_lock(app),
            ticks,
            register,
            holder=holder,
            timings=settings.timings,
            clock=clock,
            stuck_seconds=settings.stuck_seconds,
        )
        return cls(
            holder=holder,
            elector=elector,
            ticks=ticks,
            register=register,
            source=chosen_source(app),
            clock=clock,
            settings=settings,
            publish=publish,
            zone=app.timezone,
        )

    def start(self) -> None:
        """Stand for election."""
        self._elector.start()

    def now(self) -> float:
        """The store's time, seconds since 1970."""
        return self._clock.now()

    def may_send(self) -> bool:
        """Whether the term that the agenda was read for is trusted at this moment."""
        term = self._elector.term
        return (
            term is not None
            and self._epoch == term.epoch
            and term.epoch > self._refused_epoch
            and term.trusted(steady())
        )

    def tick(self) -> float:
        """Returns the seconds to the next one."""
        term = self._elector.term or self._elector.wait(_STANDBY_SECONDS)
        began = steady()
        self._look_around(began)
        if term is not None and term.epoch <= self._refused_epoch:
            # Its lease is of no use: the election has been told, and stands for a later epoch.
            role, wait = Role.STANDBY, _IDLE_SECONDS
        else:
            if term is None:
                role, wait = Role.STANDBY, 0.0
                self._problem = ""
            else:
                role, wait = Role.LEADER, self._lead(term)
            self._elector.ticked()
        self._pings.ticked(leads=role is Role.LEADER)
        self._tell(role, steady() - began)
        return wait

    def _look_around(self, now: float) -> None:
        if self._ours_at is not None:
            alone = self._elector.leader in ("", self._holder)
            looked = now - self._ours_at <= self._settings.lease_seconds
            self._ours_at = now if alone and looked else None

    def failed(self, problem: str) -> None:
        """A tick ended with an error that nobody foresaw: what is in memory is not trusted any more."""
        self._was_unable(problem)

    def stop(self) -> None:
        """Mark what was sent, then resign: a new leader shall not take it for unsent."""
        if self._epoch:
            self._quietly(lambda: self._dispatch.mark(self._epoch))
        self._quietly(self._elector.stop)
        self._quietly(self._tell_source)
        self._pings.stop()
        self._rereading.close()
        self._quietly(lambda: self._heartbeat.leave(self._holder))
        self._quietly(self._register.close)
        self._quietly(self._ticks.close)

    def _lead(self, term: Term) -> float:
        try:
            if self._epoch != term.epoch:
                self._take_over(term)
            else:
                self._look_at_source()
            decided = self._decide()
            sent = self._dispatch.run(self._epoch, self.may_send, seconds=_SENDING_SECONDS)
            self._after(sent)
        except OldEpoch as exc:
            self._was_refused(term, exc)
            return 0.0
        except _WAITING as exc:
            self._was_unable(str(exc))
            return _IDLE_SECONDS
        self._ours_at, self._unable_since = steady(), None
        self._problem = self._dispatch.problem or self._broken
        return 0.0 if decided >= _MOST_AT_ONCE else self._wait()

    def _take_over(self, term: Term) -> None:
        self._rereading.drop()
        self._source.install()
        entries = self._source.entries()
        cursors, ours = self._ticks.cursors(), self._ours_at is not None
        changes = self._agenda.begin(entries, cursors, self._now_ms(), still_ours=ours)
        self._epoch = term.epoch
        self._read_at = self._looked_at = self._compared_at = steady()
        self._dispatch.begin()
        self._dispatch.mark(term.epoch)
        self._tell_store(changes)
        self._finish_one_offs(entries.values())
        self._pings.lead(_urls(entries))
        for tick in self._ticks.unfinished():
            line = self._agenda.line(tick.schedule)
            if line is None:
                self._ticks.missed(term.epoch, tick.schedule, tick.due_ms, "its schedule is gone or disabled")
            else:
                self._dispatch.add(self._job(line.entry, tick.due_ms, tick.decided_ms))
        logger.info("leading in epoch %d with %d schedules", term.epoch, len(self._agenda))

    def _look_at_source(self) -> None:
        now = steady()
        try:
            if self._rereading.under_way:
                self._renew(self._rereading.take())
            elif now - self._looked_at >= _LOOK_SECONDS:
                self._looked_at = now
                if now - self._read_at >= self._settings.reload_seconds or self._source.changed():
                    self._read_at = now
                    self._rereading.begin()
        except SourceUnavailable as exc:
            self._broken = str(exc)

    def _renew(self, entries: Mapping[str, Entry] | None) -> None:
        if entries is None:
            return
        self._pings.lead(_urls(entries))
        changes = self._agenda.renew(entries, self._now_ms())
        self._tell_store(changes)
        self._finish_one_offs(entries.values())
        self._dispatch.drop(self._epoch, changes.drop, "its schedule is gone or disabled")
        if steady() - self._compared_at >= self._settings.reload_seconds:
            self._compared_at = steady()
            forgotten = self._agenda.unknown_to(self._ticks.cursors())
            if forgotten:
                logger.error("the tick store forgot %d schedules: it is told again", len(forgotten))
                self._ticks.put_cursors(self._epoch, forgotten)

    def _tell_store(self, changes: Changes) -> None:
        if changes.put:
            self._ticks.put_cursors(self._epoch, changes.put)
        if changes.drop:
            self._ticks.drop_cursors(self._epoch, changes.drop)
        broken = {**self._source.broken, **changes.broken}
        self._broken = "; ".join(f"{name}: {why}" for name, why in list(broken.items())[:_MOST_TOLD])

    def _finish_one_offs(self, entries: Iterable[Entry]) -> None:
        """Those that were sent, and whose source has not been told so."""
        names = [entry.name for entry in entries if entry.one_off and entry.name in self._agenda]
        if not names:
            return
        for name, tick in self._ticks.last(names).items():
            line = self._agenda.line(name)
            if (
                line is not None
                and tick.state in (State.DUE, State.SENT)
                and tick.due_ms > line.cursor.anchor_ms
            ):
                self._agenda.stop(name)
                if tick.state is State.SENT:
                    self._dispatch.sent.setdefault(name, (tick.sent_ms or tick.due_ms, 0))

    def _decide(self) -> int:
        now_ms = self._now_ms()
        decisions: list[Decision] = []
        for line in self._agenda.overdue(now_ms):
            decisions += self._decisions_of(line, now_ms)
            if len(decisions) >= _MOST_AT_ONCE:
                break
        if not decisions:
            return 0
        written = self._ticks.decide(self._epoch, decisions)
        for decision, ours in zip(decisions, written, strict=True):
            line_of = self._agenda.line(decision.schedule)
            assert line_of is not None
            self._advance(line_of.entry, decision)
            if ours and decision.state is State.DUE:
                self._dispatch.add(self._job(line_of.entry, decision.due_ms, decision.decided_ms))
        return len(decisions)

    def _decisions_of(self, line: Line, now_ms: int) -> list[Decision]:
        name = line.entry.name
        last = None if line.entry.policy.overlap else self._ticks.last_sent(name)
        try:
            decisions = self._almanac.decide(line.entry, line.cursor, now_ms=now_ms, last=last)
        except BadSchedule as exc:
            self._agenda.stop(name)
            self._broken = str(exc)
            return []
        if not decisions:
            self._agenda.postpone(name, now_ms + _AGAIN_MS)
        return decisions

    def _advance(self, entry: Entry, decision: Decision) -> None:
        try:
            self._agenda.decided(entry.name, decision.due_ms)
        except BadSchedule as exc:
            self._agenda.stop(entry.name)
            self._broken = str(exc)
        if entry.one_off and decision.state is State.DUE:
            self._agenda.stop(entry.name)

    def _job(self, entry: Entry, due_ms: int, decided_ms: int) -> Job:
        try:
            next_ms = self._agenda.after(entry.name, due_ms)
        except BadSchedule:
            next_ms = None  # What is due is sent; the schedule itself is told of where it is read.
        return Job(
            entry=entry,
            due_ms=due_ms,
            next_ms=next_ms,
            until_ms=self._almanac.until_ms(entry, due_ms=due_ms, next_ms=next_ms, decided_ms=decided_ms),
        )

    def _after(self, sent: int) -> None:
        if sent and self._first_sent != self._epoch:
            self._register.term_sent(self._epoch)
            self._first_sent = self._epoch
        now = steady()
        if self._dispatch.sent and now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            self._tell_source()
        if now >= self._prune_at:
            pruned = self._ticks.prune(
                before_ms=self._now_ms() - int(self._settings.keep_days * _DAY_MS),
                most=self._settings.keep_rows,
                limit=_PRUNE_AT_ONCE,
            )
            self._prune_at = now + (_PRUNE_SECONDS if pruned < _PRUNE_AT_ONCE else _LOOK_SECONDS)

    def _tell_source(self) -> None:
        sent = self._dispatch.take_sent()
        if sent:
            self._source.ran({name: (at_ms / 1000, times) for name, (at_ms, times) in sent.items()})

    def _wait(self) -> float:
        waits = [_IDLE_SECONDS]
        next_ms = self._agenda.next_ms()
        if next_ms is not None:
            waits.append((next_ms - self._now_ms()) / 1000)
        retry = self._dispatch.wait_seconds()
        if retry is not None:
            waits.append(retry)
        return max(0.0, min(waits))

    def _was_unable(self, problem: str) -> None:
        now = steady()
        self._problem = problem
        self._epoch = 0
        if self._unable_since is None:
            self._unable_since = now
        elif now - self._unable_since > self._settings.lease_seconds:
            self._unable_since = None
            self._elector.give_back(problem)

    def _was_refused(self, term: Term, exc: OldEpoch) -> None:
        self._refused_epoch = term.epoch
        self._epoch = 0
        self._problem = str(exc)
        self._elector.give_back(str(exc))
        logger.error("%s; this Beat sends nothing in it", exc)
        self._quietly(lambda: self._register.refused(term.epoch, self._holder, str(exc)))

    def _tell(self, role: Role, tick_seconds: float) -> None:
        """The sign of life, at the end of a tick."""
        sign = Sign(
            holder=self._holder,
            role=role,
            epoch=self._epoch if role is Role.LEADER else self._elector.epoch,
            tick_seconds=tick_seconds,
            lag_seconds=self._lag_seconds() if role is Role.LEADER else 0.0,
            schedules=len(self._agenda) if role is Role.LEADER else 0,
            skew_seconds=self._clock.skew_seconds,
            host=_HOST,
            pid=os.getpid(),
            started=self._started,
            version=_version(),
            problem=self._problem or self._elector.problem,
        )
        self._quietly(lambda: self._heartbeat.tell(sign))

    def _lag_seconds(self) -> float:
        with suppress(ClockUnknown):
            next_ms = self._agenda.next_ms()
            overdue_ms = 0 if next_ms is None else self._now_ms() - next_ms
            return max(0, overdue_ms, self._dispatch.lag_ms()) / 1000
        return 0.0

    def _now_ms(self) -> int:
        return int(self._clock.now() * 1000)

    def _quietly(self, do: Callable[[], object]) -> None:
        try:
            do()
        # What it is for is told by who needs it: here nothing rests on it.
        except Exception as exc:
            logger.warning("%s", exc)


def _urls(entries: Mapping[str, Entry]) -> dict[str, str]:
    return {name: entry.policy.ping for name, entry in entries.items() if entry.policy.ping}


def holder_name() -> str:
    """One running Beat: host, process, and a random part."""
    return f"{_HOST}:{os.getpid()}:{uuid4().hex[:8]}"


@cache
def _version() -> str:
    try:
        return version("celery-hardening")
    except PackageNotFoundError:
        return ""
