"""A Django database entry from a URL, so that a worker process can be told its database in one variable."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

ENGINES = {
    "sqlite": "django.db.backends.sqlite3",
    "postgresql": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
}


def database_from_url(url: str) -> dict[str, Any]:
    """`sqlite:///file`, `sqlite://` (in memory), `postgresql://user@host:port/name` or `mysql://...`."""
    parts = urlsplit(url)
    engine = ENGINES[parts.scheme]
    if parts.scheme == "sqlite":
        return {"ENGINE": engine, "NAME": unquote(parts.path[1:]) or ":memory:"}
    if parts.scheme == "mysql":
        import pymysql

        pymysql.install_as_MySQLdb()
    entry: dict[str, Any] = {
        "ENGINE": engine,
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }
    if parts.scheme == "mysql":
        entry["OPTIONS"] = {"charset": "utf8mb4"}
    return entry
