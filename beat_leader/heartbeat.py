"""A Beat's sign of life: to the store, for people and alarms; to a file, for a probe on the same host.

It is given by the thread that ticks, at the end of a tick: a helper thread would go on telling that all is
well while the tick hangs. A store or a disk that does not take it never stops a tick.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from .clock import steady
from .heartbeat_file import boot_id, default_directory
from .register import Register, Sign
from .ticks import TicksUnavailable

__all__ = ["EVERY_SECONDS", "Heartbeat", "heartbeat_path"]

logger = logging.getLogger("beat_leader")

EVERY_SECONDS = 1.0
"""At most so often a sign is given, however short the ticks are."""


def heartbeat_path(setting: str | None) -> Path | None:
    """Where this process writes: BEAT_LEADER["HEARTBEAT_FILE"], by default one file for each Beat process."""
    if setting == "":
        return None
    return Path(setting) if setting else default_directory() / f"{os.getpid()}.json"


class Heartbeat:
    """Of one Beat. Used by the thread that ticks only."""

    def __init__(self, register: Register, path: Path | None, *, now: Callable[[], float] = steady) -> None:
        self._register = register
        self._path = path
        self._now = now
        self._told_at: float | None = None
        self._failed = False

    def tell(self, sign: Sign) -> None:
        """A tick has ended. Never raises for a store or a disk."""
        now = self._now()
        if self._told_at is not None and 0 <= now - self._told_at < EVERY_SECONDS:
            return
        self._told_at = now
        # The file first: the store may keep us waiting, and the probe asks about this tick.
        self._write(sign, now)
        try:
            self._register.tell(sign)
        except TicksUnavailable as exc:
            logger.debug("the sign of life was not taken: %s", exc)

    def leave(self, holder: str) -> None:
        """A clean stop: nobody is to miss this Beat."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        try:
            self._register.leave(holder)
        except TicksUnavailable as exc:
            logger.debug("the store was not told that this Beat stops: %s", exc)

    def _write(self, sign: Sign, now: float) -> None:
        if self._path is None:
            return
        document = asdict(sign) | {"steady": now, "boot": boot_id(), "pid": os.getpid(), "at": time.time()}
        try:
            _replace(self._path, json.dumps(document))
            self._failed = False
        except OSError as exc:
            if not self._failed:
                logger.warning(
                    "the sign of life cannot be written to %s: %s; a probe of this Beat will fail. Give "
                    'BEAT_LEADER["HEARTBEAT_FILE"] another place, or "" for none',
                    self._path,
                    exc,
                )
            self._failed = True


def _replace(path: Path, text: str) -> None:
    """A reader sees the old file or the new one. The directory is made if it is our default one."""
    directory = path.parent
    if directory == default_directory():
        directory.mkdir(mode=0o700, exist_ok=True)
        # Its place can be foretold: one that somebody else made there is not written to.
        if directory.is_symlink() or directory.stat().st_uid != os.getuid():
            raise OSError(f"{directory} belongs to somebody else")
    handle, name = tempfile.mkstemp(dir=directory, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
