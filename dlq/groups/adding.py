"""Adds to rows that may not be there yet, many in one statement: Django's upsert can only replace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import connections, models

__all__ = ["add_to_rows"]

_ROWS_A_STATEMENT = 200


def add_to_rows(
    rows: Sequence[models.Model],
    *,
    key: Sequence[str],
    plus: Sequence[str] = (),
    least: Sequence[str] = (),
    greatest: Sequence[str] = (),
    of_latest: Mapping[str, str] | None = None,
    alias: str,
) -> None:
    """Insert each row, or combine it with the one that has its key; no key twice among `rows`.

    `plus` columns are added up, of `least` and `greatest` the smaller and the greater stays, and `of_latest`
    maps a column to one of `greatest`: it follows it. All other columns stay as they are. Rows are written in
    the order of their keys, so that two who write the same ones do not wait for each other in a circle.
    """
    if not rows:
        return
    model = type(rows[0])
    connection = connections[alias]
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
    # Not by the name of a relation, which would fetch what it names.
    keys = [field.attname for field in fields if field.name in key]
    ordered = sorted(rows, key=lambda row: [str(getattr(row, name)) for name in keys])
    quote = connection.ops.quote_name
    columns = ", ".join(quote(str(field.column)) for field in fields)
    combined = _combined(model, connection, key, plus, least, greatest, of_latest or {})
    places = f"({', '.join(['%s'] * len(fields))})"
    with connection.cursor() as cursor:
        for start in range(0, len(ordered), _ROWS_A_STATEMENT):
            part = ordered[start : start + _ROWS_A_STATEMENT]
            values = [
                field.get_db_prep_save(getattr(row, field.attname), connection)
                for row in part
                for field in fields
            ]
            cursor.execute(
                f"INSERT INTO {quote(model._meta.db_table)} ({columns}) "  # noqa: S608 - names of columns
                f"VALUES {', '.join([places] * len(part))} {combined}",
                values,
            )


def _combined(
    model: type[models.Model],
    connection: Any,
    key: Iterable[str],
    plus: Iterable[str],
    least: Iterable[str],
    greatest: Iterable[str],
    of_latest: Mapping[str, str],
) -> str:
    quote = connection.ops.quote_name
    table = quote(model._meta.db_table)
    columns = {field.name: str(field.column) for field in model._meta.concrete_fields}

    def column(name: str) -> str:
        return str(quote(columns[name]))

    is_mysql = connection.vendor == "mysql"
    smaller, larger = ("MIN", "MAX") if connection.vendor == "sqlite" else ("LEAST", "GREATEST")

    def old(name: str) -> str:
        return f"{table}.{column(name)}"

    def new(name: str) -> str:
        return f"VALUES({column(name)})" if is_mysql else f"excluded.{column(name)}"

    changes = [
        # Before what they follow: MariaDB reads columns that it has just written.
        *(
            f"{column(name)} = CASE WHEN {new(latest)} >= {old(latest)} THEN {new(name)} ELSE {old(name)} END"
            for name, latest in of_latest.items()
        ),
        *(f"{column(name)} = {old(name)} + {new(name)}" for name in plus),
        *(f"{column(name)} = {smaller}({old(name)}, {new(name)})" for name in least),
        *(f"{column(name)} = {larger}({old(name)}, {new(name)})" for name in greatest),
    ]
    if is_mysql:
        return f"ON DUPLICATE KEY UPDATE {', '.join(changes)}"
    return f"ON CONFLICT ({', '.join(column(name) for name in key)}) DO UPDATE SET {', '.join(changes)}"
