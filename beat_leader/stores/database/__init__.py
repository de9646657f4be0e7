"""Ticks and register in a database of the project's."""

from .register import Register
from .ticks import Ticks

__all__ = ["Register", "Ticks"]
