"""How Beat stands: who leads, who stands by, what is late. One answer for the command and the admin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celery import Celery

from .choice import chosen_lock, chosen_register, chosen_ticks
from .lock import Standing
from .register import Role, Sign, TermRecord
from .ticks import Tick

__all__ = ["FRESH_SECONDS", "LATE_SECONDS", "BeatStatus", "beat_status", "judged"]

FRESH_SECONDS = 20.0
"""A Beat tells of its ticks every second or so; one that did not for so long does not tick."""

LATE_SECONDS = 60.0
"""A due time that is to be sent and was not for so long, where its policy names no grace."""

_REFUSALS_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatStatus:
    """What the stores said at one moment. Times are seconds since 1970 by the store's clock."""

    now: float
    standing: Standing
    leader: Sign | None
    """The last sign of the one that has the lease; None: nobody has it, or it gave none yet."""

    standbys: tuple[Sign, ...]
    """The others that gave a sign lately."""

    silent: tuple[Sign, ...]
    """Those that gave none for long, and did not say that they stop."""

    terms: tuple[TermRecord, ...]
    late: tuple[Tick, ...]
    refusals: tuple[tuple[float, int, str, str], ...]
    problems: tuple[str, ...]
    """What is wrong, in words; empty: all is well."""

    def age(self, sign: Sign) -> float:
        """Seconds since its last tick."""
        return max(0.0, self.now - sign.at)


def beat_status(app: Celery, *, terms: int = 20) -> BeatStatus:
    """Ask the stores. Raises LockUnavailable or TicksUnavailable."""
    ticks, register = chosen_ticks(app), chosen_register(app)
    standing = chosen_lock(app).look()
    now = register.now()
    signs = register.signs()
    leader = next((each for each in signs if standing.holder and each.holder == standing.holder), None)
    others = [each for each in signs if each is not leader]
    late = ticks.late(before_ms=int((now - LATE_SECONDS) * 1000))
    refusals = register.refusals(since=now - _REFUSALS_SECONDS)
    return BeatStatus(
        now=now,
        standing=standing,
        leader=leader,
        standbys=tuple(each for each in others if now - each.at <= FRESH_SECONDS),
        silent=tuple(each for each in others if now - each.at > FRESH_SECONDS),
        terms=tuple(register.terms(terms)),
        late=tuple(late),
        refusals=tuple(refusals),
        problems=tuple(judged(standing, leader, now=now, late=late, refusals=refusals)),
    )


def judged(
    standing: Standing,
    leader: Sign | None,
    *,
    now: float,
    late: Sequence[Tick],
    refusals: Sequence[tuple[float, int, str, str]],
) -> list[str]:
    """What is wrong, in words. Pure."""
    found = []
    if not standing.holder:
        found.append(
            "nobody leads: no schedule is sent. Start `celery beat`, or see the logs of those running"
        )
    elif leader is None:
        found.append(f"{standing.holder} leads, and has not finished a tick yet")
    elif now - leader.at > FRESH_SECONDS:
        found.append(f"{leader.holder} leads, and its last tick ended {now - leader.at:.0f} s ago")
    if leader is not None and leader.role is not Role.LEADER and standing.holder:
        found.append(f"{leader.holder} has the lease, and did not tick as a leader yet")
    if leader is not None and leader.problem:
        found.append(f"{leader.holder}: {leader.problem}")
    if late:
        names = ", ".join(dict.fromkeys(each.schedule for each in late[:5]))
        found.append(f"{len(late)} due time(s) are to be sent and late, of {names}")
    if refusals:
        found.append(f"a Beat whose term was over tried to send {len(refusals)} time(s), and was refused")
    return found
