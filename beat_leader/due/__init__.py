"""When a schedule is due. Pure: the same answer in every process, whatever its clock says.

All due times are seconds since 1970 and whole milliseconds: `round(due * 1000)` loses nothing.

Crontabs and changes of the clocks. One whose hour is every hour goes by elapsed time: in an hour that comes
twice it is due twice, and what the clocks skip is no due time. One with fixed hours is due once for each time
on the wall: at the first of two, and at the end of the gap for one that the clocks skip.
"""

from .definition import definition_of
from .series import check, due_between, due_of, next_due, next_of, zone_of
from .values import BadSchedule, Due

__all__ = [
    "BadSchedule",
    "Due",
    "check",
    "definition_of",
    "due_between",
    "due_of",
    "next_due",
    "next_of",
    "zone_of",
]
