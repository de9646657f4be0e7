"""The client: what revokes keeps it before it tells the workers.

Celery's `Control` sends every command through `broadcast`: `AsyncResult.revoke`, `app.control.revoke`, and
the command line. The app's `control_cls`, which Celery has for that, becomes a subclass that keeps the revoke
first. If the process dies
- before it is kept: nobody was told, and the caller knows no answer.
- after that, before the broadcast: the workers find it within seconds, or when they start.

A store that does not answer keeps nobody from revoking: the workers that run are told, and each tries to
keep it as well.
"""

from __future__ import annotations

import logging
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery.utils.imports import symbol_by_name

from hardening.conf import load_settings

from .rules import COMMANDS, Revoke, revokes_of
from .store import chosen_revoked

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["KeepsRevokes", "keep", "let_control_keep"]

logger = logging.getLogger("hardening")


class KeepsRevokes:
    """Put before a Control."""

    app: Celery

    def broadcast(self, command: str, arguments: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Celery's, which `revoke` and all others go through."""
        if command in COMMANDS:
            # What broadcast does not know is an argument of the command.
            self._keep(revokes_of(command, {**(arguments or {}), **kwargs}))
        inherited: Any = super()
        return inherited.broadcast(command, arguments, *args, **kwargs)

    def _keep(self, revokes: Sequence[Revoke]) -> None:
        try:
            keep(self.app, revokes)
        # A project's own settings and stores may raise anything, and the workers must be told.
        except Exception as exc:
            logger.error(
                "the revoke of %s could not be kept: the workers that run now are told, one that does not "
                "hear of it may run the task. Revoke again when the store is back: %s",
                shown(revokes),
                exc,
            )


def keep(app: Celery, revokes: Sequence[Revoke]) -> None:
    """Write revokes down. Raises StoreUnavailable, BackendError."""
    if not revokes:
        return
    rules = load_settings()[0].revoked_rules
    dropped = chosen_revoked(app).add(revokes, ttl_seconds=rules.expires, most=rules.most)
    if dropped:
        logger.warning(
            "more than %d revokes: the %d that would have expired first are forgotten; if their tasks may "
            'still wait, revoke those again and raise HARDENING["REVOKED"]["MOST"]',
            rules.most,
            dropped,
        )


def shown(revokes: Sequence[Revoke]) -> str:
    """The first few, for a log."""
    first = ", ".join(revoke.shown for revoke in revokes[:5])
    return f"{first} and {len(revokes) - 5} more" if len(revokes) > 5 else first


def let_control_keep(app: Celery) -> None:
    """From now on the app's control keeps what is revoked through it; one that was made already ends."""
    mine: Any = app
    if isinstance(mine.control_cls, partial) and mine.control_cls.func is _made:
        return
    # A partial, since a class of the project's may not be importable yet; Celery takes any callable.
    mine.control_cls = partial(_made, mine.control_cls)
    mine.__dict__.pop("control", None)


def _made(own: Any, app: Celery) -> Any:
    return _kept(symbol_by_name(own))(app)


@cache
def _kept(own: type[Any]) -> type[Any]:
    return type(own.__name__, (KeepsRevokes, own), {"__module__": own.__module__, "__doc__": own.__doc__})
