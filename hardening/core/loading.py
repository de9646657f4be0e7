"""Backends by dotted path: {"BACKEND": "package.module.Class", "OPTIONS": {...}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.module_loading import import_string

from .errors import HardeningError

__all__ = ["BackendError", "load_backend"]


class BackendError(HardeningError):
    """A backend named in the settings cannot be loaded or does not fulfil its protocol."""


def load_backend(protocol: Any, dotted_path: str, options: Mapping[str, Any]) -> Any:
    """Import, construct and check a backend. Raises BackendError with the reason."""
    try:
        backend = import_string(dotted_path)(**options)
    except Exception as exc:
        raise BackendError(f"{dotted_path} cannot be loaded: {exc!r}") from exc
    if not isinstance(backend, protocol):
        raise BackendError(f"{dotted_path} does not fulfil {protocol.__name__}")
    return backend
