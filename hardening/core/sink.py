"""The port where dead letters go, and the place where an app offers an implementation of it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .letter import DeadLetter

__all__ = ["DeadLetterSink", "offer_sink", "offered_sink"]


@runtime_checkable
class DeadLetterSink(Protocol):
    """Keeps dead letters durably.

    An implementation is constructed with its OPTIONS as keyword arguments.
    """

    def keep(self, letter: DeadLetter) -> None:
        """Store the letter durably before returning.

        Idempotent: the same delivery key and replay number with the same body, kept twice while the
        first is still open, is one letter with one count more. Raises SinkUnavailable (or any
        exception) when the letter is not stored; the caller then keeps it elsewhere.
        """
        ...


_offered: list[str] = []


def offer_sink(dotted_path: str) -> None:
    """Called by an app that brings a sink: used unless HARDENING["DEAD_LETTER_SINK"] names another."""
    _offered[:] = [dotted_path]


def offered_sink() -> str | None:
    """The dotted path of the sink that an installed app brought, or None."""
    return _offered[0] if _offered else None
