"""What a rehearsal saw: each attempt, how the message ended, and the same as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .classification.verdict import Verdict
from .core.letter import DeadLetter
from .core.reasons import Reason
from .history import class_path
from .retries.durations import text_of

__all__ = ["Ended", "Rehearsal", "RehearsedAttempt"]

Ended = Literal["done", "dead_letter", "ignored", "unfinished"]
"""done: the body returned. dead_letter: a letter was kept. ignored: the task raised Ignore, nothing
follows. unfinished: still retried when the rehearsal was stopped."""

_TEXT_CHARS = 100
_FIRST_SHOWN, _LAST_SHOWN = 10, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedAttempt:
    """One delivery: what it raised, what was said of it, and the seconds until the next one.

    `delay` is None where no other follows. `parked`: the message was put back because its dependency
    is down, before its body ran or after a failed probe; the attempt does not count and comes again.
    `decision` and `policy` are for people.
    """

    number: int
    error: BaseException | None
    verdict: Verdict | None
    delay: float | None
    parked: bool
    decision: str = ""
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What becomes of a message. `reason` and `letter` are given where it ended as a dead letter,
    `result` where the body returned. The letter's times are those of the rehearsal: nobody waited."""

    task_name: str
    attempts: tuple[RehearsedAttempt, ...]
    ended: Ended
    reason: Reason | None = None
    letter: DeadLetter | None = None
    result: Any = None

    @property
    def delays(self) -> tuple[float, ...]:
        """The seconds before each retry, parked deliveries left out."""
        return tuple(a.delay for a in self.attempts if a.delay is not None and not a.parked)

    @property
    def runs(self) -> int:
        """How often the work was attempted, parked deliveries left out."""
        return sum(not attempt.parked for attempt in self.attempts)

    def describe(self) -> str:
        """What happened, line by line, with the rule and the policy that decided."""
        lines = [_line(attempt) for attempt in self.attempts]
        if len(lines) > _FIRST_SHOWN + _LAST_SHOWN + 1:
            left_out = f"  ... {len(lines) - _FIRST_SHOWN - _LAST_SHOWN} more ..."
            lines = [*lines[:_FIRST_SHOWN], left_out, *lines[-_LAST_SHOWN:]]
        waited = text_of(sum(a.delay or 0.0 for a in self.attempts))
        times = "1 attempt" if self.runs == 1 else f"{self.runs} attempts"
        policies = dict.fromkeys(attempt.policy for attempt in self.attempts if attempt.policy)
        return "\n".join(
            [
                f"task {self.task_name}:",
                *lines,
                f"  {self._end()}, after {times} in {waited}",
                *(f"  policy: {policy}" for policy in policies),
            ]
        )

    def _end(self) -> str:
        if self.reason is not None:
            return f'dead letter with the reason "{self.reason}"'
        ends = {
            "done": "done",
            "ignored": "ignored by the task: no retry, no letter",
            "unfinished": "still retried when the rehearsal stopped",
        }
        return ends.get(self.ended, self.ended)


def _line(attempt: RehearsedAttempt) -> str:
    verdict, said = attempt.verdict, attempt.decision
    if not said and verdict is not None:
        said = f"{verdict.kind} by {verdict.rule} {verdict.code}".rstrip()
    if attempt.error is None:
        return f"  {attempt.number}. {said or 'returned'}"
    if not said:
        said = "the body did not run" if attempt.parked else "not judged"
    return f"  {attempt.number}. {_shown(attempt.error)} -> {said}"


def _shown(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # As in a letter: a broken __str__ hides nothing else.
        text = "(its text cannot be read)"
    text = text if len(text) <= _TEXT_CHARS else f"{text[: _TEXT_CHARS - 3]}..."
    return f"{class_path(type(error))}: {text}" if text else class_path(type(error))
