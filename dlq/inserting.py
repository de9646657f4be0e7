"""Writes a letter and its attempts, all or nothing: on PostgreSQL in one statement and one round trip.

Capture is on the path of every failed task, and most of its time were round trips: BEGIN, letter, attempts,
COMMIT. PostgreSQL takes both tables in one statement, which is a transaction of its own. The attempts are one
value of it, in JSON: so the text is always the same, and short enough for the driver to parse it only once.
Others take two statements in a transaction.

No database sends signals of models here: a receiver of the project must not cost a letter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.db import connections, models, transaction

from .models import Attempt, DeadLetter

__all__ = ["insert"]


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
    values: list[Any] = [
        field.get_db_prep_save(getattr(row, field.attname), connection)
        for field in _written_fields(DeadLetter)
    ]
    names = [field.attname for field in _written_fields(Attempt)]
    # Text as it is: escapes of JSON would be refused by a database that is not in UTF-8.
    values.append(
        json.dumps([{n: getattr(a, n) for n in names} for a in attempts], default=str, ensure_ascii=False)
    )
    with connection.cursor() as cursor:
        cursor.execute(_statement(alias), values)


@lru_cache
def _statement(alias: str) -> str:
    letter, attempt = _written_fields(DeadLetter), _written_fields(Attempt)
    # It takes the letter whether or not the rest reads it. BinaryField is alone in asking for a cast.
    places = ["%s::bytea" if isinstance(field, models.BinaryField) else "%s" for field in letter]
    types = [f'"{field.column}" {field.db_type(connections[alias])}' for field in attempt]
    parts = (
        f'WITH letter AS (INSERT INTO "{DeadLetter._meta.db_table}" ({_columns(letter)})',
        f"VALUES ({', '.join(places)}))",
        f'INSERT INTO "{Attempt._meta.db_table}" ({_columns(attempt)}) SELECT {_columns(attempt)}',
        f"FROM json_to_recordset(%s) AS attempt ({', '.join(types)})",
    )
    return " ".join(parts)


def _columns(fields: Sequence[models.Field[Any, Any]]) -> str:
    return ", ".join(f'"{field.column}"' for field in fields)


@lru_cache
def _written_fields(model: type[models.Model]) -> tuple[models.Field[Any, Any], ...]:
    made_by_the_database = (models.AutoField, models.GeneratedField)
    return tuple(
        field for field in model._meta.concrete_fields if not isinstance(field, made_by_the_database)
    )
