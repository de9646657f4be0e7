"""How large the store is, as far as its database tells; in one quick question, never by counting letters."""

from __future__ import annotations

from dataclasses import dataclass

from django.apps import apps
from django.db import connections

from .models import DeadLetter

__all__ = ["StoreSize", "store_size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSize:
    """None: the database does not tell."""

    bytes: int | None = None
    letters: int | None = None
    """An estimate of the database."""


def store_size(alias: str) -> StoreSize:
    """Of our tables with their indexes; of an SQLite file, all of it."""
    connection = connections[alias]
    tables = [model._meta.db_table for model in apps.get_app_config("dlq").get_models()]
    letters = DeadLetter._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT SUM(pg_total_relation_size(c.oid)), "
                "MAX(CASE WHEN c.relname = %s THEN c.reltuples END) FROM pg_class c "
                "WHERE c.relname = ANY(%s) AND c.relkind IN ('r', 'p') AND pg_table_is_visible(c.oid)",
                [letters, tables],
            )
        elif connection.vendor == "mysql":
            places = ", ".join(["%s"] * len(tables))
            cursor.execute(
                "SELECT SUM(data_length + index_length), "  # noqa: S608 - places for values only
                "MAX(CASE WHEN table_name = %s THEN table_rows END) FROM information_schema.tables "
                f"WHERE table_schema = DATABASE() AND table_name IN ({places})",
                [letters, *tables],
            )
        elif connection.vendor == "sqlite":
            cursor.execute("SELECT page_count * page_size, NULL FROM pragma_page_count(), pragma_page_size()")
        else:
            return StoreSize()
        size, rows = cursor.fetchone()
    return StoreSize(
        bytes=None if size is None else int(size),
        # PostgreSQL says -1 of a table that was never looked through.
        letters=None if rows is None or rows < 0 else int(rows),
    )
