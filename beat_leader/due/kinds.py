"""What kind of schedule an object is: one of Celery's, computed here, or one whose own code must be asked."""

from __future__ import annotations

from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

from celery.schedules import BaseSchedule, crontab, schedule, solar

__all__ = ["Kind", "kind_of"]


class Kind(Enum):
    """How its due times are found."""

    CRON = "crontab"
    INTERVAL = "interval"
    CLOCKED = "clocked"
    SOLAR = "solar"
    ESTIMATED = "its own estimate"
    ASKED = "its own is_due"


_DJANGO = "django_celery_beat."
"""Where a subclass of crontab and the class of clocked ones come from, which only add a zone and a time."""


def kind_of(when: Any) -> Kind:
    """Raises TypeError for what is no schedule."""
    cls: type = type(when)
    known = _known.get(cls)
    if known is None:
        known = _known[cls] = _of_class(cls)
    return known


_known: WeakKeyDictionary[type, Kind] = WeakKeyDictionary()


def _of_class(cls: type) -> Kind:
    if not callable(getattr(cls, "is_due", None)):
        raise TypeError(f"{cls.__qualname__} is no schedule of Celery's")
    django = cls.__module__.startswith(_DJANGO)
    if any(each.__name__ == "clocked" and each.__module__.startswith(_DJANGO) for each in cls.__mro__):
        return Kind.CLOCKED
    for base, kind in ((crontab, Kind.CRON), (schedule, Kind.INTERVAL), (solar, Kind.SOLAR)):
        if issubclass(cls, base):
            if django:
                return kind
            return _overridden(cls, base) or kind
    # A class that is not even a BaseSchedule has no `nowfun` that its estimate would heed.
    estimates = issubclass(cls, BaseSchedule) and _has_own(cls, BaseSchedule, "remaining_estimate")
    return Kind.ESTIMATED if estimates and not _has_own(cls, BaseSchedule, "is_due") else Kind.ASKED


def _overridden(cls: type, base: type) -> Kind | None:
    """How to ask a subclass that is due by code of its own."""
    known = next(each for each in cls.__mro__ if each is base or each.__module__.startswith(_DJANGO))
    if _has_own(cls, known, "is_due"):
        return Kind.ASKED
    own = any(_has_own(cls, known, name) for name in ("remaining_estimate", "remaining_delta"))
    return Kind.ESTIMATED if own else None


def _has_own(cls: type, base: type, name: str) -> bool:
    return getattr(cls, name, None) is not getattr(base, name, None)
