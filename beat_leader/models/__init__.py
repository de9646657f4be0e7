"""What Beats keep in a database of the project's."""

from .lease import Lease
from .policy import SchedulePolicy
from .register import BeatSign, BeatTerm, Refusal
from .ticks import CursorRow, Fence, TickRow

__all__ = [
    "BeatSign",
    "BeatTerm",
    "CursorRow",
    "Fence",
    "Lease",
    "Refusal",
    "SchedulePolicy",
    "TickRow",
]
