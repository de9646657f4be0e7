"""The boot step of the worker's parent: hears what is revoked, and looks for what it did not hear.

Celery's registry of commands is open to projects; ours stand around whatever stands there for the commands
that revoke, also a command of the project's, and pass everything on.
"""

from __future__ import annotations

from functools import wraps
from typing import Any
from weakref import WeakSet

from celery import Celery, bootsteps
from celery.worker.control import Panel

from .mirror import mirror_of
from .rules import COMMANDS, LOOK_EVERY_SECONDS, revokes_of

__all__ = ["Revokes"]


class Revokes(bootsteps.StartStopStep):
    """Started with each connection, before its first message: Celery takes none before all steps run."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._entry: Any = None
        self._mirror = mirror_of(consumer.app)
        _hear(consumer.app)

    def start(self, consumer: Any) -> None:
        """Look at once, and then every few seconds."""
        self._mirror.look(at_once=True)
        self._entry = consumer.timer.call_repeatedly(LOOK_EVERY_SECONDS, self._mirror.look)

    def stop(self, consumer: Any) -> None:
        """Until the next connection."""
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None


_HEARS = "_hardening_hears"

_apps: WeakSet[Celery] = WeakSet()
"""Those of our workers: the registry is one for all apps of a process."""


def _hear(app: Celery) -> None:
    _apps.add(app)
    for name in COMMANDS:
        command = Panel.data[name]
        if not hasattr(command, _HEARS):
            Panel.data[name] = _hearing(name, command)


def _hearing(name: str, command: Any) -> Any:
    @wraps(command)
    def hearing(state: Any, *args: Any, **arguments: Any) -> Any:
        if state.app in _apps:
            mirror_of(state.app).heard(revokes_of(name, arguments))
        return command(state, *args, **arguments)

    setattr(hearing, _HEARS, True)
    return hearing
