"""A project with Beat's stores in memory, and what Beats would write there: for tests of its pages."""

from __future__ import annotations

import time
from typing import Any

from beat_leader.choice import chosen_lock, chosen_register, chosen_ticks
from beat_leader.register import Role, Sign
from beat_leader.ticks import Decision, State, task_id_for

__all__ = ["HOSTILE", "IN_MEMORY", "Project"]

HOSTILE = '"><script>alert(1)</script>'
IN_MEMORY = {
    "LOCK": {"BACKEND": "beat_leader.locks.memory.MemoryLock"},
    "STORE": {"BACKEND": "beat_leader.stores.memory"},
    "SOURCE": "code",
}


class Project:
    """Its app, and its stores."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.ticks, self.register = chosen_ticks(app), chosen_register(app)
        self.now_ms = int(time.time() * 1000)

    def lead(self, holder: str = "web-1:7:ab") -> int:
        epoch = chosen_lock(self.app).acquire(holder, lease_seconds=60.0).epoch
        self.ticks.open_term(epoch)
        self.register.term_began(epoch, holder)
        self.register.tell(
            Sign(holder=holder, role=Role.LEADER, epoch=epoch, tick_seconds=0.1, lag_seconds=0.0, schedules=2)
        )
        return epoch

    def due(self, schedule: str, ago: float, state: State = State.DUE, why: str = "") -> str:
        due_ms = self.now_ms - int(ago * 1000)
        decision = Decision(schedule=schedule, due_ms=due_ms, state=state, why=why, decided_ms=due_ms)
        self.ticks.decide(1, [decision])
        if state is State.DUE:
            self.ticks.sent(1, [(schedule, due_ms)], due_ms + 1500)
        return task_id_for(schedule, due_ms)
