"""Statements of hardening's stores: `hardening.core.statements`, with what they raise."""

from __future__ import annotations

from hardening.core import statements
from hardening.core.statements import Statements
from hardening.store import StoreBusy, StoreUnavailable

__all__ = ["Lost", "OnDatabase", "Statements"]


class Lost(StoreBusy):
    """Another was faster: it made the document first, or the database undid our statement for its sake."""


class OnDatabase(statements.OnDatabase):
    """Something of hardening's kept in the table of a model."""

    keeps = "the shared state"
    unavailable = StoreUnavailable
    busy = StoreBusy
    lost = Lost
