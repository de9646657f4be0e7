"""From when on people are told: every entry of DLQ["ALERTS"], with its default and why."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AlertThresholds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertThresholds:
    """What DLQ["ALERTS"] says. None: that condition is not looked at."""

    new_group_minutes: float | None = 60.0
    """A group that is new is told of, until somebody says something of it or it is so old."""

    regressed_groups: bool = True
    """A resolved group whose letters come again is told of, until somebody says something of it."""

    growth_per_minute: float | None = 60.0
    """More letters a minute than this, over the window: something broke, however many there were before."""

    growth_window_minutes: float = 5.0
    """Over how long the rate is taken. At most `growth_per_minute` times this many letters are looked at."""

    oldest_open_days: float | None = 7.0
    """An open letter of this age: nobody works on the store."""

    store_megabytes: float | None = 5_000.0
    """Tables with their indexes, as the database tells; of SQLite the whole file. Before the disk is full."""

    store_letters: int | None = 2_000_000
    """Where the database does not tell bytes: letters, as it estimates them."""

    replay_paused: bool = True
    """An operation that paused by itself is told of: it waits for somebody."""

    ingest_stuck_minutes: float | None = 10.0
    """Letters lie on the broker for so long, and no worker takes them in. Read when a process starts."""
