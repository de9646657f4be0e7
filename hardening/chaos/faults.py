"""Does to the workers and their servers what the plan says."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from .facts import Hit
from .fleet import DEPLOY_SECONDS, Fleet, Worker, children_of
from .plan import Fault, Strike
from .records import Witnessed
from .stage import Stage

__all__ = ["Striker"]

SHORTEST_STOP_SECONDS, LONGEST_STOP_SECONDS = 4.0, 10.0
"""Around the tuned lease of 6 s."""

SHORTEST_OUTAGE_SECONDS, LONGEST_OUTAGE_SECONDS = 0.2, 3.0
_AFTERMATH_SECONDS = 5.0
"""So long after it a stop still explains what runs twice: what the worker had taken before begins late."""

_BUSY_SHARE = 0.85
"""So many of the kills of a child go to one that is at work, where there is one."""


class Striker:
    """Carries out strikes. A strike on a worker waits until one is up."""

    def __init__(self, stage: Stage, fleet: Fleet, witnessed: Witnessed, note: Callable[[Hit], None]) -> None:
        self._stage = stage
        self._fleet = fleet
        self._witnessed = witnessed
        self._note = note

    def strike(self, strike: Strike) -> bool:
        """Do it; false where nobody is there to be hit yet."""
        match strike.fault:
            case Fault.CUT:
                return self._cut()
            case Fault.BROKER:
                return self._restart_broker(strike)
            case Fault.DATABASE:
                return self._restart_database(strike)
            case _:
                up = self._fleet.up()
                return bool(up) and self._hit(strike, up[int(strike.dice[0] * len(up))])

    def _hit(self, strike: Strike, worker: Worker) -> bool:
        now = time.time()
        match strike.fault:
            case Fault.KILL_CHILD:
                return self._kill_child(strike, worker)
            case Fault.KILL_WORKER:
                self._note(self._hit_of(strike, now, worker, self._fleet.kill(worker)))
            case Fault.STOP:
                worker.process.pause()
                seconds = _between(SHORTEST_STOP_SECONDS, LONGEST_STOP_SECONDS, strike.dice[1])
                worker.resume_at = now + seconds
                until = worker.resume_at + _AFTERMATH_SECONDS
                hit = self._hit_of(strike, now, worker, _all_of(worker), until=until)
                self._note(hit)
            case _:
                worker.process.send_signal(signal.SIGTERM)
                worker.planned_until = now + DEPLOY_SECONDS
                until = now + _AFTERMATH_SECONDS
                hit = self._hit_of(strike, now, worker, _all_of(worker), until=until)
                self._note(hit)
        return True

    def _kill_child(self, strike: Strike, worker: Worker) -> bool:
        children = sorted(children_of(worker.process.pid))
        if not children:
            return False
        busy = [pid for pid in children if pid in self._witnessed.busy]
        among = busy if busy and strike.dice[1] < _BUSY_SHARE else children
        place = strike.dice[1] / _BUSY_SHARE if among is busy else strike.dice[1]
        pid = among[min(int(place * len(among)), len(among) - 1)]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._note(self._hit_of(strike, time.time(), worker, frozenset({pid})))
        return True

    def _cut(self) -> bool:
        self._stage.proxy.cut()
        self._note(Hit(name=Fault.CUT, at=time.time(), note="all connections"))
        return True

    def _restart_broker(self, strike: Strike) -> bool:
        began = time.time()
        self._stage.broker.kill()
        self._stage.proxy.cut()
        time.sleep(_between(SHORTEST_OUTAGE_SECONDS, LONGEST_OUTAGE_SECONDS, strike.dice[1]))
        self._stage.broker.start()
        self._note(Hit(name=Fault.BROKER, at=began, until=time.time(), note="SIGKILL, restarted"))
        return True

    def _restart_database(self, strike: Strike) -> bool:
        server = self._stage.postgres
        if server is None:
            return True  # SQLite has no server.
        began = time.time()
        killed = strike.dice[0] < 0.5
        if killed:
            server.kill()
        else:
            server.stop()
        time.sleep(_between(SHORTEST_OUTAGE_SECONDS, LONGEST_OUTAGE_SECONDS, strike.dice[1]))
        server.start()
        note = "SIGKILL, restarted" if killed else "stopped, started"
        self._note(Hit(name=Fault.DATABASE, at=began, until=time.time(), pids=frozenset(), note=note))
        return True

    def _hit_of(
        self, strike: Strike, at: float, worker: Worker, pids: frozenset[int], until: float = 0.0
    ) -> Hit:
        note = f"#{strike.number} {worker.name} after {strike.after}"
        return Hit(name=strike.fault, at=at, until=until, pids=pids, note=note)


def _all_of(worker: Worker) -> frozenset[int]:
    return frozenset({worker.process.pid, *children_of(worker.process.pid)})


def _between(shortest: float, longest: float, dice: float) -> float:
    return shortest + (longest - shortest) * dice
