"""Where Beats of this host write their signs of life by default. Standard library only: a probe reads it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["boot_id", "default_directory"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def default_directory() -> Path:
    """One for each user of the host; each Beat has a file of its own in it."""
    return Path(tempfile.gettempdir()) / f"beat_leader-{os.getuid()}"


def boot_id() -> str:
    """Names this run of the machine; empty where the system does not tell it."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
