"""Have a library really raise its error, and judge it by all built-in rules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hardening.classification.builtin import BUILTIN
from hardening.classification.classifier import Classifier, RuleBook
from hardening.classification.verdict import Verdict

__all__ = ["judged", "judged_async", "said"]

CLASSIFIER = Classifier([RuleBook(BUILTIN)])


def judged(call: Callable[..., object], *args: object, **options: object) -> Verdict:
    """The verdict on what the call raises; it must raise."""
    try:
        call(*args, **options)
    except Exception as exc:
        return CLASSIFIER.judge(exc)
    raise AssertionError(f"{call} raised nothing")


def judged_async(make: Callable[[], Awaitable[object]]) -> Verdict:
    """The same for a coroutine, in an event loop of its own."""

    async def run() -> object:
        return await make()

    return judged(asyncio.run, run())


def said(verdict: Verdict) -> tuple[str, str, str]:
    """The verdict in three words: kind, rule, code."""
    return str(verdict.kind), verdict.rule, verdict.code
