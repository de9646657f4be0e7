"""Kills the Beat that leads, while the jobs run, and counts in the end whether any due time knew of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from beat_leader.choice import chosen_register, chosen_ticks
from beat_leader.lock import LockUnavailable
from beat_leader.register import Role
from beat_leader.status import beat_status
from beat_leader.ticks import State, TicksUnavailable
from hardening.core.apps import celery_app
from sample_project.demo.duetimes import DueTimes, Takeover, count_due_times
from sample_project.demo.errors import DemoError
from sample_project.demo.progress import say
from sample_project.demo.watch import LOOK_SECONDS, Watch

LEAD_SECONDS = 2.0
TAKEOVER_SECONDS = 60.0
RUN_SECONDS = 30.0
MOST_ROWS = 10_000


class Failover:
    """`look` is called now and then, and does what is to be done; it never waits.

    `kill` ends the process of this id, one of ours, without giving it a chance to say so.
    """

    def __init__(self, kill: Callable[[int], None]) -> None:
        self._kill = kill
        self._killed: tuple[int, float] | None = None
        self.takeover: Takeover | None = None

    def look(self) -> None:
        """Kill the leader once it has led for some seconds with another beside it; then await the next."""
        with suppress(LockUnavailable, TicksUnavailable):  # The next look asks again.
            if self._killed is None:
                self._kill_leader()
            elif self.takeover is None:
                self.takeover = self._taken_over(*self._killed)

    def finish(self, check: Callable[[], None]) -> Takeover:
        """Wait for the takeover, if it is not over yet."""
        deadline = time.monotonic() + TAKEOVER_SECONDS
        while self.takeover is None:
            check()
            self.look()
            if time.monotonic() > deadline:
                raise DemoError(
                    "no Beat led with another beside it"
                    if self._killed is None
                    else f"no Beat took over within {TAKEOVER_SECONDS:.0f} s"
                )
            time.sleep(LOOK_SECONDS)
        return self.takeover

    def _kill_leader(self) -> None:
        status = beat_status(celery_app(), terms=1)
        leader = status.leader
        if leader is None or leader.role is not Role.LEADER or not status.standbys or not status.terms:
            return
        first_sent = status.terms[0].first_sent
        if first_sent is not None and status.now - first_sent >= LEAD_SECONDS:
            say(f"killing the Beat that leads in epoch {leader.epoch}")
            killed_at = chosen_register(celery_app()).now()
            self._kill(leader.pid)
            self._killed = leader.epoch, killed_at

    def _taken_over(self, epoch: int, killed_at: float) -> Takeover | None:
        for term in chosen_register(celery_app()).terms(5):
            if term.epoch > epoch and term.first_sent is not None:
                return Takeover(killed=epoch, after=term.epoch, seconds=term.first_sent - killed_at)
        return None


def settled_due_times(watch: Watch) -> DueTimes:
    """When all Beats have stopped: wait until all that they sent has run, and count it."""
    every_ms = {
        name: round(entry["schedule"] * 1000) for name, entry in celery_app().conf.beat_schedule.items()
    }
    deadline = time.monotonic() + RUN_SECONDS
    while True:
        watch.look()
        rows = chosen_ticks(celery_app()).history(limit=MOST_ROWS)
        sent = {(row.schedule, row.due_ms) for row in rows if row.state is State.SENT}
        counted = count_due_times(every_ms, sent, watch.scheduled)
        if counted.balances or time.monotonic() > deadline:
            return counted
        time.sleep(LOOK_SECONDS)
