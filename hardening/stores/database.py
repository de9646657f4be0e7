"""DatabaseStore: shared state in a database of the project's, where the broker is no Redis.

Each swap is one statement that names the version, committed by itself.

A document that is not there is made by an UPDATE of a row whose time is over, else by an INSERT; the
primary key lets one of several callers through. A connection that broke may have committed its
statement. So each statement takes a row with the new version for its own work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from django.db import Error

from hardening.models import KEY_LENGTH, State
from hardening.store import ABSENT, Entry, checked_ttl, decoded, encoded, new_version

from .statements import Lost, OnDatabase, Statements

__all__ = ["DatabaseStore"]

_READ = """
SELECT {clock}, s.{version}, s.{value} FROM (SELECT 1 AS one) AS o
LEFT JOIN {table} AS s ON s.{key} = %s AND s.{expires_at} > {clock}
"""
_SET = "UPDATE {table} SET {value} = %s, {version} = %s, {expires_at} = {clock} + %s WHERE {key} = %s AND "
_CHANGE = _SET + "{version} IN (%s, %s) AND {expires_at} > {clock}"
_REUSE = _SET + "({expires_at} <= {clock} OR {version} = %s)"
_CREATE = "INSERT INTO {table} ({value}, {version}, {expires_at}, {key}) VALUES (%s, %s, {clock} + %s, %s)"
_DELETE = "DELETE FROM {table} WHERE {key} = %s AND {version} = %s AND {expires_at} > {clock}"
_OVER = "SELECT {key} FROM {table} WHERE {expires_at} <= {clock} ORDER BY {expires_at} LIMIT 10"
_CLEAR = "DELETE FROM {table} WHERE {key} = %s AND {expires_at} <= {clock}"

_PLAIN_KEY = re.compile(rf"[a-z0-9._:@/-]{{1,{KEY_LENGTH}}}")


class DatabaseStore(OnDatabase):
    """Documents in the table of `hardening.models.State`."""

    model = State
    columns = ("key", "value", "version", "expires_at")

    def read(self, key: str) -> Entry:
        """The document, and the time of the database server, in one statement."""

        def work(sql: Statements) -> Entry:
            now, version, text = sql.first(_READ, _column(key))
            if version is None:
                return Entry(None, ABSENT, float(now))
            return Entry(decoded(text), int(version), float(now))

        return self._do(work)

    def swap(self, key: str, *, version: int, value: Mapping[str, Any] | None, ttl_seconds: float) -> bool:
        """Put a document in the place of the one with that version. A new one also removes old rows."""
        ttl, column, new = checked_ttl(ttl_seconds), _column(key), new_version()
        if value is None:
            if version == ABSENT:
                return self.read(key).version == ABSENT
            return self._try(lambda sql: sql.changes(_DELETE, column, version))
        row = (encoded(value), new, ttl, column)
        if version == ABSENT:
            return self._try(lambda sql: _create(sql, row))
        return self._try(lambda sql: sql.changes(_CHANGE, *row, version, new))

    def _try(self, work: Callable[[Statements], bool]) -> bool:
        try:
            return self._do(work)
        except Lost:
            return False


def _create(sql: Statements, row: tuple[str, int, float, str]) -> bool:
    if sql.changes(_REUSE, *row, row[1]):
        return True
    sql.changes(_CREATE, *row)
    try:
        # The table grows only here, so this bounds it.
        for (key,) in sql.rows(_OVER):
            sql.changes(_CLEAR, key)
    except Error:
        pass  # The document is written, and the next new one clears again.
    return True


def _column(key: str) -> str:
    """The key as its column takes it: no two keys are equal to a database that ignores case or blanks."""
    if _PLAIN_KEY.fullmatch(key):
        return key
    digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{re.sub(r'[^a-z0-9._:@/-]', '_', key.lower())[: KEY_LENGTH - 65]}~{digest}"
