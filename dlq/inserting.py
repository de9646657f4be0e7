"""Writes a letter and its attempts, all or nothing: on PostgreSQL in one statement and one round trip.

Capture is on the path of every failed task, and most of its time were round trips: BEGIN, letter, attempts,
COMMIT. PostgreSQL takes both tables in one statement, which is a transaction of its own. The attempts are one
value of it, in JSON: so the text is always the same, and short enough for the driver to parse it only once.
Values travel beside it: none is quoted, and the server reads no long text for them. What only later steps in
a letter's life write stands in the text of a new one. Others take two statements in a transaction.

No database sends signals of models here: a receiver of the project must not cost a letter.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from .models import Attempt, DeadLetter

__all__ = ["insert"]

_OF_LATER_STEPS = frozenset(
    {
        *("occurrence", "state", "captures", "group_id", "imported_from", "claim_token", "claimed_at"),
        *("claimed_by", "replayed_at", "replay_error", "closed_at", "closed_by", "discard_reason"),
    }
)
# Text as it is: escapes of JSON would be refused by a database that is not in UTF-8.
_as_json = json.JSONEncoder(default=str, ensure_ascii=False).encode


def insert(row: DeadLetter, attempts: Sequence[Attempt], *, alias: str) -> None:
    """Store all or nothing. Raises what the database raises: IntegrityError where the letter is there.

    Outside a transaction it is committed when this returns.
    """
    connection = connections[alias]
    if connection.vendor != "postgresql":
        with transaction.atomic(using=alias, savepoint=False):
            DeadLetter.objects.using(alias).bulk_create([row])
            Attempt.objects.using(alias).bulk_create(attempts)
        return
    kept = row.__dict__
    fields, fixed = _written_fields(DeadLetter), _at_first()
    new = all(kept[name] == value for name, value in fixed)
    if new:
        fields = _given_fields()
    values = [_value(field, kept[field.attname], connection) for field in fields]
    names = _names_of_attempts()
    values.append(_as_json([{name: each.__dict__[name] for name in names} for each in attempts]))
    with _cursor(connection) as cursor:
        cursor.execute(_statement(alias, new), values)


def _value(field: models.Field[Any, Any], value: Any, connection: BaseDatabaseWrapper) -> Any:
    """As the driver takes it. Texts, numbers, ids and moments with a zone it takes as they are."""
    kind = type(value)
    if (kind in (str, int, bool, UUID) and not isinstance(field, models.JSONField)) or value is None:
        return value
    if kind is datetime and value.tzinfo is not None:
        return value
    return field.get_db_prep_save(value, connection)


def _cursor(connection: BaseDatabaseWrapper) -> Any:
    """Django's; with psycopg 3 one that sends values beside the statement, whatever the project chose."""
    psycopg: Any = sys.modules.get("psycopg")
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    driver = connection.connection
    if psycopg is None or not isinstance(driver, psycopg.Connection):
        return connection.cursor()
    connection.validate_thread_sharing()
    with connection.wrap_database_errors:
        cursor = psycopg.Cursor(driver)
    return (
        connection.make_debug_cursor(cursor) if connection.queries_logged else connection.make_cursor(cursor)
    )


@lru_cache
def _statement(alias: str, new: bool) -> str:
    """`new`: the letter is in its first state, and has no values for the fields that say so."""
    letter, attempt = _written_fields(DeadLetter), _written_fields(Attempt)
    fixed = dict(_at_first()) if new else {}
    parts = (
        f'WITH letter AS (INSERT INTO "{DeadLetter._meta.db_table}" ({_columns(letter)})',
        # It takes the letter whether or not the rest reads it.
        f"VALUES ({', '.join(_place(field, fixed) for field in letter)}))",
        f'INSERT INTO "{Attempt._meta.db_table}" ({_columns(attempt)}) SELECT {_columns(attempt)}',
        f"FROM json_to_recordset(%s) AS attempt ({_types(attempt, alias)})",
    )
    return " ".join(parts)


def _place(field: models.Field[Any, Any], fixed: dict[str, Any]) -> str:
    if field.attname in fixed:
        value = fixed[field.attname]
        return "NULL" if value is None else f"'{value}'"
    # BinaryField is alone in asking for a cast.
    return "%s::bytea" if isinstance(field, models.BinaryField) else "%s"


def _types(fields: Sequence[models.Field[Any, Any]], alias: str) -> str:
    return ", ".join(f'"{field.column}" {field.db_type(connections[alias])}' for field in fields)


def _columns(fields: Sequence[models.Field[Any, Any]]) -> str:
    return ", ".join(f'"{field.column}"' for field in fields)


@lru_cache(maxsize=1)
def _at_first() -> tuple[tuple[str, Any], ...]:
    """What a letter that nothing has happened to says in the fields of later steps."""
    fields = _written_fields(DeadLetter)
    return tuple((field.attname, field.get_default()) for field in fields if field.attname in _OF_LATER_STEPS)


@lru_cache(maxsize=1)
def _given_fields() -> tuple[models.Field[Any, Any], ...]:
    return tuple(field for field in _written_fields(DeadLetter) if field.attname not in _OF_LATER_STEPS)


@lru_cache(maxsize=1)
def _names_of_attempts() -> tuple[str, ...]:
    return tuple(field.attname for field in _written_fields(Attempt))


@lru_cache
def _written_fields(model: type[models.Model]) -> tuple[models.Field[Any, Any], ...]:
    made_by_the_database = (models.AutoField, models.GeneratedField)
    return tuple(
        field for field in model._meta.concrete_fields if not isinstance(field, made_by_the_database)
    )
