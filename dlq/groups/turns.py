"""Work that one process at a time does, and for which no other waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction
from django.db.models import QuerySet
from django.utils import timezone

from ..models import Turn

__all__ = ["one_at_a_time", "unlocked_only"]

# Of its transaction on PostgreSQL, should it wait all the same, as for a migration.
_PATIENCE = "250ms"


@contextmanager
def one_at_a_time(name: str, *, alias: str) -> Iterator[bool]:
    """A transaction; whether its holder may do the work of this name: until it ends nobody else may.

    False at once where another holds it. On SQLite it waits for whoever writes, as long as the connection's
    time-out allows, and raises OperationalError then; from its first statement on it is the only writer, and
    what it reads is what is there.
    """
    connection = connections[alias]
    outermost = not connection.in_atomic_block
    if connection.features.has_select_for_update and not _turns(name, alias).exists():
        # By itself and at once: a row that a long transaction has inserted is waited for by who wants it too.
        Turn.objects.using(alias).bulk_create([Turn(name=name, at=timezone.now())], ignore_conflicts=True)
    with transaction.atomic(using=alias):
        if outermost and connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [_PATIENCE])
        yield _taken(name, alias)


def unlocked_only(alias: str) -> dict[str, Any]:
    """Arguments of select_for_update that make it wait for nobody."""
    features: Any = connections[alias].features
    if not features.has_select_for_update:
        return {}
    # MariaDB 10.5 can only give up, which raises OperationalError: the next turn tries again.
    return {"skip_locked": True} if features.has_select_for_update_skip_locked else {"nowait": True}


def _taken(name: str, alias: str) -> bool:
    turns = _turns(name, alias)
    now = timezone.now()
    if not connections[alias].features.has_select_for_update:
        # A write before any read, also where it changes no row: SQLite cannot make a writer of a reader.
        if not turns.update(at=now):
            Turn.objects.using(alias).bulk_create([Turn(name=name, at=now)], ignore_conflicts=True)
        return True
    if not turns.select_for_update(**unlocked_only(alias)).exists():
        return False
    turns.update(at=now)
    return True


def _turns(name: str, alias: str) -> QuerySet[Turn]:
    return Turn.objects.using(alias).filter(name=name)
