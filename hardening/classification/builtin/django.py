"""Rules about Django's errors, and those of the database drivers below it."""

from __future__ import annotations

from ..database_codes import database_code, decide_database, is_sqlite_schema, is_stale_plan
from ..rule import Rule
from ..verdict import Kind, Verdict

__all__ = ["RULES"]

_DRIVERS = (
    "psycopg",
    "psycopg2",
    "MySQLdb",
    "pymysql.err",
    "mysql.connector.errors",
    "mariadb",
    "sqlite3",
)


def _broken_transaction(exc: BaseException) -> Verdict:
    """ "You can't execute queries until the end of the atomic block": what broke the transaction decides."""
    code = database_code(exc)
    kind = _by_words(exc) or (decide_database(code) if code else None)
    if kind is None and type(exc.__cause__).__name__ in ("OperationalError", "InterfaceError"):
        kind = Kind.TRANSIENT
    if kind is None and exc.__cause__ is None and "An error occurred" in str(exc):
        kind = Kind.UNKNOWN  # Whoever caught that error kept it to himself.
    return Verdict(kind=kind or Kind.PERMANENT, rule="", code=code or "")


def _by_words(exc: BaseException) -> Kind | None:
    if is_stale_plan(exc):
        return Kind.TRANSIENT
    return Kind.UNKNOWN if is_sqlite_schema(exc) else None


def _named(package: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}" for name in names)


def _database(prefix: str, packages: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules about one tree of PEP 249's errors; a code says more than a class."""

    def classes(*names: str) -> tuple[str, ...]:
        return tuple(name for package in packages for name in _named(package, *names))

    return (
        Rule(
            name=f"{prefix}.stale_plan",
            classes=classes("NotSupportedError"),
            when=is_stale_plan,
            verdict=Kind.TRANSIENT,
            read=database_code,
            why=(
                'PostgreSQL\'s "cached plan must not change result type": a migration changed a table under '
                "a prepared statement, which a new connection prepares anew."
            ),
        ),
        Rule(
            name=f"{prefix}.sqlite_schema",
            classes=classes("OperationalError"),
            when=is_sqlite_schema,
            verdict=Kind.UNKNOWN,
            read=database_code,
            why="SQLite has no such table or column: the code may be deployed before its migration.",
        ),
        Rule(
            name=f"{prefix}.connection",
            classes=classes("OperationalError", "InterfaceError"),
            verdict=Kind.TRANSIENT,
            read=database_code,
            decide=decide_database,
            why="The database is away, busy or cut the connection, unless its code says that it never will.",
        ),
        Rule(
            name=f"{prefix}.data",
            classes=classes("IntegrityError", "DataError", "ProgrammingError", "NotSupportedError"),
            verdict=Kind.PERMANENT,
            read=database_code,
            decide=decide_database,
            why="The database refused what it was told, and will again, unless its code says otherwise.",
        ),
        Rule(
            name=f"{prefix}.database",
            classes=classes("DatabaseError", "Error"),
            read=database_code,
            decide=decide_database,
            why="The code of the database says what it is.",
        ),
    )


RULES: tuple[Rule, ...] = (
    *_database("django", ("django.db.utils",)),
    *_database("driver", _DRIVERS),
    Rule(
        name="django.transaction",
        classes=("django.db.transaction.TransactionManagementError",),
        says=_broken_transaction,
        why="In a transaction that an earlier error broke, that error decides; otherwise the code is wrong.",
    ),
    Rule(
        name="django.deleted_row",
        classes=("django.core.exceptions.ObjectNotUpdated",),
        verdict=Kind.PERMANENT,
        weak=True,
        why="The row that was to be updated is no longer there.",
    ),
    Rule(
        name="django.object",
        classes=_named("django.core.exceptions", "ObjectDoesNotExist", "MultipleObjectsReturned"),
        verdict=Kind.PERMANENT,
        weak=True,
        why=(
            "The rows are not there; publish with transaction.on_commit where they come too late. A retry "
            "that the task asks for by hand is granted."
        ),
    ),
    Rule(
        name="django.validation",
        classes=(
            *_named("django.core.exceptions", "ValidationError", "BadRequest", "FieldError"),
            "django.core.mail.message.BadHeaderError",
            "django.core.mail.BadHeaderError",
        ),
        verdict=Kind.PERMANENT,
        why="The data is not valid.",
    ),
    Rule(
        name="django.refused",
        classes=(
            *_named("django.core.exceptions", "PermissionDenied", "SuspiciousOperation"),
            "django.core.signing.BadSignature",
        ),
        verdict=Kind.PERMANENT,
        why="It is not allowed.",
    ),
    Rule(
        name="django.programming",
        classes=(
            *_named(
                "django.core.exceptions",
                "FieldDoesNotExist",
                "ImproperlyConfigured",
                "AppRegistryNotReady",
                "MiddlewareNotUsed",
                "SynchronousOnlyOperation",
                "ViewDoesNotExist",
            ),
            "django.urls.exceptions.NoReverseMatch",
            "django.urls.exceptions.Resolver404",
            "django.http.response.Http404",
            "django.http.Http404",
            "django.template.exceptions.TemplateDoesNotExist",
            "django.template.exceptions.TemplateSyntaxError",
            "django.utils.connection.ConnectionDoesNotExist",
        ),
        verdict=Kind.PERMANENT,
        why="The code or the configuration is wrong, which only a change mends.",
    ),
)
