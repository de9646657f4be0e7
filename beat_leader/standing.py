"""What a Beat can find out about its stores at its start: that they can be chosen, and have their tables.

A database or a Redis that does not answer now is no finding: a Beat waits for it.
"""

from __future__ import annotations

from celery import Celery
from django.apps import apps
from django.db import DatabaseError, connections, router

from hardening.core.connection import bounded_connection, drop_connection
from hardening.core.errors import HardeningError
from hardening.core.findings import Finding, Level

from .choice import chosen_lock, chosen_register, chosen_ticks
from .conf import beat_settings
from .sources import chosen_source

__all__ = ["MISSING_TABLES_CODE", "NO_STORE_CODE", "standing_findings"]

MISSING_TABLES_CODE = "CH043"
NO_STORE_CODE = "CH044"
_ANSWER_SECONDS = 3


def standing_findings(app: Celery) -> list[Finding]:
    """Why this Beat could never lead."""
    try:
        for chosen in (chosen_lock, chosen_ticks, chosen_register, chosen_source):
            chosen(app)
    except HardeningError as exc:
        return [
            Finding(
                code=NO_STORE_CODE,
                level=Level.ERROR,
                what=f"there is nothing to elect a leader with: {exc}",
                where="settings.BEAT_LEADER",
                remedy="Correct LOCK, STORE or SOURCE, or install what they need.",
            )
        ]
    return _missing_tables()


def _missing_tables() -> list[Finding]:
    missing = sorted(_absent())
    if not missing:
        return []
    return [
        Finding(
            code=MISSING_TABLES_CODE,
            level=Level.ERROR,
            what=f"the database lacks {', '.join(missing)}",
            where="the database of beat_leader",
            remedy="Run `python manage.py migrate`.",
        )
    ]


def _absent() -> set[str]:
    """Tables of models of ours that are not there, as far as databases answer."""
    wanted: dict[str, set[str]] = {}
    for model in apps.get_app_config("beat_leader").get_models():
        alias = beat_settings().database or router.db_for_write(model)
        wanted.setdefault(alias, set()).add(model._meta.db_table)
    absent: set[str] = set()
    for alias, tables in wanted.items():
        try:
            with bounded_connection(alias, _ANSWER_SECONDS):
                absent |= tables.difference(connections[alias].introspection.table_names())
        except DatabaseError:
            continue
        finally:
            drop_connection(alias)
    return absent
