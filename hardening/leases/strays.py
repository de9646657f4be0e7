"""Strays: messages that are held and that nothing in this worker will ever acknowledge.

A plain worker gives them back by its visibility timeout, whatever became of them: a request that Celery
dropped, an error between the delivery and its strategy. Here their leases would be renewed for ever. What
nothing but the ledger refers to cannot be acknowledged any more: it goes back, behind the others.
"""

from __future__ import annotations

import sys
from typing import Any

from .holdings import Holdings

__all__ = ["Strays"]

_OF_THE_LEDGER = 3
"""References to a message that is in the ledger only: the ledger's, the one in hand, and the question's."""


class Strays:
    """Looks twice, so that a message on its way from the one to the other is none."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._suspects: set[str] = set()

    def give_back(self) -> list[Any]:
        """Give those back that were alone at the last look as well; returns their messages or tags."""
        alone = {tag for tag in self._holdings.tags() if self._is_alone(tag)}
        found = alone & self._suspects
        self._suspects = alone - found
        messages = [self._holdings.delivered.get(tag) or tag for tag in found]
        for tag in found:
            self._holdings.give_back(tag, last=True)
            self._holdings.dirty.add(tag)
        return messages

    def _is_alone(self, tag: str) -> bool:
        if self._holdings.is_ending(tag):
            return False
        message = self._holdings.delivered.get(tag)
        return message is None or sys.getrefcount(message) <= _OF_THE_LEDGER
