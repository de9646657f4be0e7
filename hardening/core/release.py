"""The project's release, as this process was told it."""

from __future__ import annotations

from collections.abc import Mapping

from django.conf import settings

__all__ = ["running_release"]


def running_release() -> str:
    """HARDENING["RELEASE"]; empty where it is not set, or is no text."""
    hardening = getattr(settings, "HARDENING", None)
    release = hardening.get("RELEASE", "") if isinstance(hardening, Mapping) else ""
    return release if isinstance(release, str) else ""
