"""Codes of databases (SQLSTATE, MySQL's numbers, SQLite's names): read from an error, and what they say.

Sources: PostgreSQL, "Appendix A. Error Codes"; MariaDB, "Error Codes"; MySQL, "Server Error Message
Reference" and "Client Error Message Reference"; SQLite, "Result and Extended Result Codes".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .verdict import Kind

__all__ = [
    "database_code",
    "decide_database",
    "decide_mysql",
    "decide_sqlite",
    "decide_sqlstate",
    "is_sqlite_schema",
    "is_stale_plan",
]

_DEPTH = 4
"""Django's error, perhaps a second one about the broken transaction, and the driver's."""

_SQLSTATE = re.compile(r"[0-9A-Z]{5}")
_SQLSTATE_PACKAGES = ("psycopg", "psycopg2")
_MYSQL_PACKAGES = ("MySQLdb", "pymysql", "mysql", "mariadb", "asyncmy", "aiomysql")

# A refused connection has no SQLSTATE in libpq, only the server's words, which are these in English.
_REFUSALS = (
    (re.compile(r'FATAL: +database ".*" does not exist'), "3D000"),
    (re.compile(r"FATAL: +password authentication failed|no password supplied"), "28P01"),
    (re.compile(r'FATAL: +(?:role ".*" does not exist|no pg_hba\.conf entry)'), "28000"),
)
# One of several addresses may answer later: then the refusal of another one decides nothing.
_MAY_ANSWER = re.compile(
    r"refused|timed? ?out|timeout|starting up|shutting down|too many|unreachable|reset|closed the connection"
)

_NO_SUCH = re.compile(r"no such (?:table|column): |table .* has no column named ")

_T, _P, _U = Kind.TRANSIENT, Kind.PERMANENT, Kind.UNKNOWN

_SQLSTATE_CLASSES = {
    "08": _T,  # Connection.
    "0A": _P,  # Feature not supported.
    "0L": _P,
    "0P": _P,
    "21": _P,  # Cardinality.
    "22": _P,  # Data.
    "23": _P,  # Constraint.
    "26": _T,  # No such prepared statement: a pooler gave the transaction another connection.
    "28": _T,  # Who may log in: passwords are rotated, and no message is to blame.
    "2B": _P,
    "34": _T,  # No such cursor: as above.
    "3D": _T,  # No such database, for now: one that is restored or moved.
    "3F": _P,
    "40": _T,  # Deadlock, serialization failure.
    "42": _P,  # Syntax, names, rights.
    "44": _P,
    "53": _T,  # Connections, memory, disk.
    "54": _P,  # Too complex.
    "57": _T,  # Shut down, cancelled.
}
_SQLSTATES = {
    "25006": _T,  # Read-only: a replica, also one that is about to be the primary.
    "25P03": _T,
    "25P04": _T,
    "40002": _P,  # A constraint, found at the commit.
    # A function, column, object or table that is not there: the code may be here before its migration.
    "42883": _U,
    "42703": _U,
    "42704": _U,
    "42P01": _U,
    "42P05": _T,  # The prepared statement exists: a pooler gave the connection of another client.
    "55006": _T,
    "55P03": _T,  # Lock not available.
    "58000": _T,
    "58030": _T,
    "72000": _T,
    "HY000": None,
    "P0001": _U,  # RAISE EXCEPTION: only its author knows.
    "P0002": _P,
    "P0003": _P,
    "P0004": _P,
}

_MYSQL_TRANSIENT = frozenset(
    {
        # Locks and concurrent changes; 1020 is MariaDB's, 3572 MySQL's.
        *(1020, 1205, 1206, 1207, 1213, 1412, 1614, 1637, 3572),
        # The server or the connection: full, shutting down, killed, cut, or not in its cluster yet.
        *(1040, 1047, 1053, 1077, 1078, 1079, 1080, 1081, 1129, 1152, 1158, 1159, 1160, 1161, 1184),
        *(1189, 1190, 1203, 1226, 1927, 4031),
        # Cancelled or too slow.
        *(1317, 1969, 3024),
        # Disk and memory.
        *(1021, 1030, 1037, 1038, 1041, 1135, 1297),
        # Read-only: a replica, also one that is about to be the primary.
        *(1290, 1836),
        # Who may log in, and where: passwords are rotated, a database is restored or moved.
        *(1044, 1045, 1049, 1698),
        # The client's: no connection, lost it, no such host.
        *(2001, 2002, 2003, 2004, 2005, 2006, 2012, 2013, 2026, 2027, 2055),
    }
)
_MYSQL_PERMANENT = frozenset(
    {
        # Who may do what, and how to log in.
        *(1046, 1142, 1143, 1227, 1251, 1370, 1396, 1410, 1419, 2059),
        # Syntax and names.
        *(1050, 1051, 1052, 1060, 1061, 1064, 1066, 1091, 1102, 1103, 1109, 1110, 1111, 1136),
        *(1149, 1166, 1176, 1305, 1318),
        # Constraints and data.
        *(1048, 1062, 1169, 1216, 1217, 1222, 1230, 1263, 1264, 1265, 1292, 1364, 1365, 1366, 1367),
        *(1406, 1441, 1451, 1452, 1557, 1586),
        *(1690, 3140, 3819, 4025),
        # Too big, not there.
        *(1070, 1071, 1118, 1153, 1235, 1286, 1289),
    }
)
_MYSQL_UNKNOWN = frozenset(
    {
        1644,  # SIGNAL: only its author knows.
        # A column or a table that is not there: the code may be here before its migration.
        *(1054, 1146),
    }
)

_SQLITE = {
    "SQLITE_BUSY": _T,
    "SQLITE_LOCKED": _T,
    "SQLITE_PROTOCOL": _T,
    "SQLITE_SCHEMA": _T,
    "SQLITE_INTERRUPT": _T,
    "SQLITE_IOERR": _T,
    "SQLITE_FULL": _T,
    "SQLITE_NOMEM": _T,
    "SQLITE_CANTOPEN": _T,
    "SQLITE_ABORT": _T,
    "SQLITE_ERROR": _P,  # Wrong SQL; see is_sqlite_schema.
    "SQLITE_CONSTRAINT": _P,
    "SQLITE_MISMATCH": _P,
    "SQLITE_TOOBIG": _P,
    "SQLITE_RANGE": _P,
    "SQLITE_MISUSE": _P,
    "SQLITE_READONLY": _P,
    "SQLITE_PERM": _P,
    "SQLITE_AUTH": _P,
    "SQLITE_NOTADB": _P,
    "SQLITE_NOLFS": _P,
}
_SQLITE_NUMBERS = {
    4: "SQLITE_ABORT",
    5: "SQLITE_BUSY",
    6: "SQLITE_LOCKED",
    10: "SQLITE_IOERR",
    19: "SQLITE_CONSTRAINT",
}


def database_code(exc: BaseException) -> str | None:
    """The code of a database's error, of the error itself or of the driver's error behind it.

    A SQLSTATE ("40P01"), a number of MySQL or MariaDB ("1213"), or a name of SQLite ("SQLITE_BUSY").
    """
    for error in _causes(exc):
        code = _sqlite(error) or _mysql(error) or _sqlstate(error)
        if code is not None:
            return code
    return None


def decide_database(code: str) -> Kind | None:
    """What a code of any of the three kinds says; None for one that says nothing."""
    if code.startswith("SQLITE_"):
        return decide_sqlite(code)
    # SQLSTATEs have five characters, the numbers four.
    return decide_sqlstate(code) if _SQLSTATE.fullmatch(code) else decide_mysql(code)


def decide_sqlstate(code: str) -> Kind | None:
    """By the code itself, else by its class, the first two characters."""
    return _SQLSTATES[code] if code in _SQLSTATES else _SQLSTATE_CLASSES.get(code[:2])


def decide_mysql(code: str) -> Kind | None:
    """By the number."""
    number = int(code) if code.isascii() and code.isdigit() else 0
    if number in _MYSQL_UNKNOWN:
        return Kind.UNKNOWN
    if number in _MYSQL_TRANSIENT:
        return Kind.TRANSIENT
    return Kind.PERMANENT if number in _MYSQL_PERMANENT else None


def decide_sqlite(code: str) -> Kind | None:
    """By the primary code that an extended one ("SQLITE_CONSTRAINT_UNIQUE") begins with."""
    return _SQLITE.get("_".join(code.split("_")[:2]))


def is_stale_plan(exc: BaseException) -> bool:
    """PostgreSQL's "cached plan must not change result type": a migration changed what was prepared before.

    Its SQLSTATE, 0A000, stands for all that PostgreSQL does not support. The name of the function
    that raised it is the same in every language of the server's messages.
    """
    return any(
        _sqlstate(error) == "0A000"
        and (
            getattr(getattr(error, "diag", None), "source_function", None) == "RevalidateCachedQuery"
            or "cached plan must not change result type" in str(error)
        )
        for error in _causes(exc)
    )


def is_sqlite_schema(exc: BaseException) -> bool:
    """SQLite's missing table or column, for which it has no code: perhaps a migration is still to come."""
    return any(
        _sqlite(error) == "SQLITE_ERROR" and _NO_SUCH.match(str(error)) is not None for error in _causes(exc)
    )


def _causes(exc: BaseException) -> Iterator[BaseException]:
    error: BaseException | None = exc
    for _ in range(_DEPTH):
        if error is None:
            return
        yield error
        error = error.__cause__


def _sqlite(exc: BaseException) -> str | None:
    name = getattr(exc, "sqlite_errorname", None)
    if isinstance(name, str) and name.startswith("SQLITE_"):
        return name
    number = getattr(exc, "sqlite_errorcode", None)
    return _SQLITE_NUMBERS.get(number & 0xFF) if isinstance(number, int) else None


def _mysql(exc: BaseException) -> str | None:
    if not _is_of(exc, _MYSQL_PACKAGES) and not _is_of(exc, ("django",)):
        return None
    first: Any = exc.args[0] if exc.args else None
    number = first if isinstance(first, int) else getattr(exc, "errno", None)  # errno: MySQL's own driver.
    if isinstance(number, bool) or not isinstance(number, int) or not 1_000 <= number < 10_000:
        return None
    return str(number)


def _sqlstate(exc: BaseException) -> str | None:
    for attribute in ("sqlstate", "pgcode"):
        code = getattr(exc, attribute, None)
        if isinstance(code, str) and _SQLSTATE.fullmatch(code):
            return code
    if _is_of(exc, _SQLSTATE_PACKAGES):
        first: Any = exc.args[0] if exc.args else None
        return _refusal(first) if isinstance(first, str) else None
    return None


def _refusal(text: str) -> str | None:
    if _MAY_ANSWER.search(text):
        return None
    return next((code for words, code in _REFUSALS if words.search(text)), None)


def _is_of(exc: BaseException, packages: tuple[str, ...]) -> bool:
    return any(str(cls.__module__).partition(".")[0] in packages for cls in type(exc).__mro__)
