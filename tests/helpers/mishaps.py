"""What befalls a database while it is in use."""

from __future__ import annotations

from django.db import connections

__all__ = ["end_session", "rename"]


def rename(alias: str, old: str, new: str) -> None:
    """Give a table another name, as if a migration had not run."""
    with connections[alias].cursor() as cursor:
        cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")


def end_session(alias: str) -> None:
    """End the connection of this thread from the server's side."""
    connection = connections[alias]
    other = connections.create_connection(alias)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_backend_pid()")
            statement = "SELECT pg_terminate_backend(%s)"
        else:
            cursor.execute("SELECT CONNECTION_ID()")
            statement = "KILL %s"
        session = cursor.fetchone()[0]
    with other.cursor() as cursor:
        cursor.execute(statement, [session])
    other.close()
