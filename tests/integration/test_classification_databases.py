"""The errors of real databases are classified by their codes, through Django and straight from the driver."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction

from hardening.classification.builtin import BUILTIN
from hardening.classification.classifier import Classifier, RuleBook
from hardening.classification.verdict import Kind
from tests.helpers.databases import database_from_url
from tests.helpers.dlq_databases import database_alias_for

P, T, U = Kind.PERMANENT, Kind.TRANSIENT, Kind.UNKNOWN
NAME = "classified"

Said = tuple[Kind, str, str]


@pytest.fixture
def postgres(postgres_server, django_db_blocker) -> Iterator[Any]:
    yield from prepared(database_from_url(postgres_server.url), django_db_blocker)


@pytest.fixture
def mariadb(mariadb_server, django_db_blocker) -> Iterator[Any]:
    import pymysql

    pymysql.version_info = (2, 2, 8, "final", 0)
    yield from prepared(database_from_url(mariadb_server.url), django_db_blocker)


@pytest.fixture
def sqlite(tmp_path, django_db_blocker) -> Iterator[Any]:
    entry = database_from_url(f"sqlite:///{tmp_path / 'classified.sqlite3'}")
    entry["OPTIONS"] = {"timeout": 0}
    yield from prepared(entry, django_db_blocker)


def prepared(entry: dict[str, Any], blocker: Any) -> Iterator[Any]:
    """A connection to a database with an empty table of items and two rows of stock."""
    with blocker.unblock(), database_alias_for(NAME, entry):
        connection = connections[NAME]
        run(connection, "DROP TABLE IF EXISTS item")
        run(connection, "DROP TABLE IF EXISTS stock")
        run(
            connection,
            "CREATE TABLE stock (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL CHECK (amount >= 0))",
        )
        run(
            connection,
            "CREATE TABLE item (id INTEGER PRIMARY KEY, name VARCHAR(5) UNIQUE, "
            "stock_id INTEGER, FOREIGN KEY (stock_id) REFERENCES stock (id))",
        )
        run(connection, "INSERT INTO stock VALUES (1, 5), (2, 5)")
        yield connection


def run(connection: Any, sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


def second(connection: Any) -> Any:
    """Another connection to the same database. Close it."""
    return connection.copy()


def judged(exc: BaseException) -> Said:
    verdict = Classifier((RuleBook(BUILTIN),)).judge(exc)
    return verdict.kind, verdict.rule, verdict.code


def said(act: Callable[[], Any]) -> Said:
    """The verdict on Django's error; that on the driver's error behind it is the same."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 (the verdict says which)
        act()
    kind, rule, code = judged(caught.value)
    assert rule.startswith("django.")
    if caught.value.__cause__ is not None:
        raw = judged(caught.value.__cause__)
        assert (raw[0], raw[2]) == (kind, code)
        assert raw[1].startswith("driver.")
    return kind, rule, code


def failing(connection: Any, sql: str) -> Said:
    def act() -> None:
        with transaction.atomic(using=NAME):
            run(connection, sql)

    return said(act)


def deadlock(connection: Any) -> Said:
    """Each of two transactions holds the row that the other one wants; the database ends one of them."""
    outcomes: list[BaseException] = []
    holding = threading.Barrier(2, timeout=30)

    def change(first: int, then: int, mine: Any) -> None:
        try:
            run(mine, "BEGIN")
            run(mine, f"UPDATE stock SET amount = amount + 1 WHERE id = {first}")
            holding.wait()
            run(mine, f"UPDATE stock SET amount = amount + 1 WHERE id = {then}")
            run(mine, "COMMIT")
        except Exception as exc:
            outcomes.append(exc)
        finally:
            mine.close()

    threads = []
    for first, then in ((1, 2), (2, 1)):
        mine = second(connection)
        mine.inc_thread_sharing()
        threads.append(threading.Thread(target=change, args=(first, then, mine)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    (loser,) = outcomes

    def again() -> None:
        raise loser

    return said(again)


# PostgreSQL.


def test_postgres_deadlock_is_transient(postgres) -> None:
    assert deadlock(postgres) == (T, "django.connection", "40P01")


def test_postgres_serialization_failure_is_transient(postgres) -> None:
    other = second(postgres)
    try:
        for each in (postgres, other):
            run(each, "BEGIN ISOLATION LEVEL SERIALIZABLE")
            run(each, "SELECT sum(amount) FROM stock")
        for key, each in ((1, postgres), (2, other)):
            run(each, f"UPDATE stock SET amount = 0 WHERE id = {key}")
        run(postgres, "COMMIT")

        assert said(lambda: run(other, "COMMIT")) == (T, "django.connection", "40001")
    finally:
        other.close()


def test_postgres_lock_and_statement_time_outs_are_transient(postgres) -> None:
    other = second(postgres)
    try:
        run(other, "BEGIN")
        run(other, "UPDATE stock SET amount = 0 WHERE id = 1")

        run(postgres, "SET lock_timeout = '10ms'")
        wanted = "UPDATE stock SET amount = 0 WHERE id = 1"
        assert failing(postgres, wanted) == (T, "django.connection", "55P03")
        assert failing(postgres, "SELECT * FROM stock WHERE id = 1 FOR UPDATE NOWAIT") == (
            *(T, "django.connection", "55P03"),
        )
        run(postgres, "SET lock_timeout = 0; SET statement_timeout = '10ms'")
        assert failing(postgres, wanted) == (T, "django.connection", "57014")
    finally:
        other.close()


def test_postgres_killed_backend_is_transient_and_so_is_the_dead_connection(postgres) -> None:
    other = second(postgres)
    try:
        (pid,) = run(other, "SELECT pg_backend_pid()")[0]
        run(postgres, f"SELECT pg_terminate_backend({pid}, 5000)")

        assert said(lambda: run(other, "SELECT 1")) == (T, "django.connection", "57P01")
        assert said(lambda: run(other, "SELECT 1"))[:2] == (T, "django.connection")
    finally:
        other.close()


def test_postgres_read_only_server_is_transient(postgres) -> None:
    run(postgres, "SET default_transaction_read_only = on")

    assert failing(postgres, "INSERT INTO stock VALUES (3, 0)") == (T, "django.database", "25006")


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("INSERT INTO stock VALUES (1, 0)", "23505"),
        ("INSERT INTO stock VALUES (3, NULL)", "23502"),
        ("INSERT INTO stock VALUES (3, -1)", "23514"),
        ("INSERT INTO item VALUES (1, 'a', 77)", "23503"),
        ("INSERT INTO item VALUES (1, 'too long', NULL)", "22001"),
        ("INSERT INTO stock VALUES (3, 99999999999)", "22003"),
        ("SELECT 1 / 0", "22012"),
        ("SELEC 1", "42601"),
        ("SELECT DISTINCT amount FROM stock FOR UPDATE", "0A000"),
    ],
)
def test_postgres_refusals_are_permanent(postgres, sql, code) -> None:
    assert failing(postgres, sql) == (P, "django.data", code)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT * FROM no_such_table", "42P01"),
        ("SELECT no_such_column FROM stock", "42703"),
        ("SELECT no_such_function()", "42883"),
        ("SELECT NULL::no_such_type", "42704"),
    ],
)
def test_what_a_migration_may_bring_to_postgres_is_unknown(postgres, sql, code) -> None:
    assert failing(postgres, sql) == (U, "django.data", code)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("EXECUTE no_such_statement", "26000"),
        ("FETCH no_such_cursor", "34000"),
        ("PREPARE twice AS SELECT 1; PREPARE twice AS SELECT 1", "42P05"),
    ],
)
def test_postgres_statements_and_cursors_lost_behind_a_pooler_are_transient(postgres, sql, code) -> None:
    assert failing(postgres, sql)[::2] == (T, code)


def test_postgres_plan_that_a_migration_made_stale_is_transient(postgres) -> None:
    run(postgres, "PREPARE kept AS SELECT * FROM stock")
    run(postgres, "ALTER TABLE stock ADD COLUMN note VARCHAR(5)")

    assert failing(postgres, "EXECUTE kept") == (T, "django.stale_plan", "0A000")


def test_postgres_raise_of_a_project_says_nothing(postgres) -> None:
    assert failing(postgres, "DO $$ BEGIN RAISE EXCEPTION 'ours'; END $$")[::2] == (U, "P0001")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"NAME": "no_such_database"}, "3D000"),
        ({"USER": "nobody_known"}, "28000"),
        ({"PORT": "1"}, ""),
    ],
)
def test_postgres_that_lets_nobody_in_is_transient(postgres, changes, code) -> None:
    wrong = postgres.__class__({**postgres.settings_dict, **changes}, NAME)

    assert said(wrong.ensure_connection) == (T, "django.connection", code)


def test_postgres_that_has_no_connection_left_is_transient(postgres) -> None:
    run(postgres, "DROP ROLE IF EXISTS single")
    run(postgres, "CREATE ROLE single LOGIN CONNECTION LIMIT 0")
    wrong = postgres.__class__({**postgres.settings_dict, "USER": "single"}, NAME)

    assert said(wrong.ensure_connection)[:2] == (T, "django.connection")


def test_after_an_error_in_a_transaction_that_error_decides(postgres) -> None:
    def act(sql: str) -> Callable[[], None]:
        def inner() -> None:
            with transaction.atomic(using=NAME):
                # As around each save() of a model.
                with pytest.raises(DatabaseError), transaction.mark_for_rollback_on_error(using=NAME):
                    run(postgres, sql)
                run(postgres, "SELECT 1")

        return inner

    (pid,) = run(postgres, "SELECT pg_backend_pid()")[0]
    assert judged_raise(act("SELECT 1 / 0")) == (P, "django.transaction", "22012")
    assert judged_raise(act("SELECT * FROM no_such_table")) == (U, "django.transaction", "42P01")
    run(postgres, "PREPARE kept AS SELECT * FROM stock")
    run(postgres, "ALTER TABLE stock ADD COLUMN note VARCHAR(5)")
    assert judged_raise(act("EXECUTE kept")) == (T, "django.transaction", "0A000")
    assert judged_raise(act(f"SELECT pg_cancel_backend({pid}), pg_sleep(9)")) == (
        *(T, "django.transaction", "57014"),
    )


def judged_raise(act: Callable[[], Any]) -> Said:
    with pytest.raises(transaction.TransactionManagementError) as caught:
        act()
    return judged(caught.value)


# MariaDB.


def test_mariadb_deadlock_is_transient(mariadb) -> None:
    assert deadlock(mariadb) == (T, "django.connection", "1213")


def test_mariadb_lock_time_out_is_transient(mariadb) -> None:
    other = second(mariadb)
    try:
        run(other, "BEGIN")
        run(other, "UPDATE stock SET amount = 0 WHERE id = 1")
        run(mariadb, "SET innodb_lock_wait_timeout = 0")

        wanted = "UPDATE stock SET amount = 1 WHERE id = 1"
        assert failing(mariadb, wanted) == (T, "django.connection", "1205")
    finally:
        other.close()


def test_mariadb_statement_time_out_is_transient(mariadb) -> None:
    sql = "SET STATEMENT max_statement_time = 0.01 FOR SELECT sleep(20) FROM stock"

    assert failing(mariadb, sql) == (T, "django.connection", "1969")


def test_mariadb_killed_connection_is_transient(mariadb) -> None:
    other = second(mariadb)
    try:
        ((connection_id,),) = run(other, "SELECT connection_id()")
        run(mariadb, f"KILL {connection_id}")

        kind, rule, code = said(lambda: run(other, "SELECT 1"))
        assert (kind, rule) == (T, "django.connection")
        assert code in {"1927", "2006", "2013"}
        assert said(lambda: run(other, "SELECT 1"))[:2] == (T, "django.connection")
    finally:
        other.close()


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("INSERT INTO stock VALUES (1, 0)", "1062"),
        ("INSERT INTO stock VALUES (3, NULL)", "1048"),
        ("INSERT INTO stock VALUES (3, -1)", "4025"),
        ("INSERT INTO item VALUES (1, 'a', 77)", "1452"),
        ("INSERT INTO item VALUES (1, 'too long', NULL)", "1406"),
        ("INSERT INTO stock VALUES (3, 99999999999)", "1264"),
        ("INSERT INTO stock VALUES (3, 'x')", "1366"),
        ("SELEC 1", "1064"),
    ],
)
def test_mariadb_refusals_are_permanent(mariadb, sql, code) -> None:
    kind, _rule, found = failing(mariadb, sql)

    assert (kind, found) == (P, code)


@pytest.mark.parametrize(
    ("sql", "code"),
    [("SELECT * FROM no_such_table", "1146"), ("SELECT no_such_column FROM stock", "1054")],
)
def test_what_a_migration_may_bring_to_mariadb_is_unknown(mariadb, sql, code) -> None:
    assert failing(mariadb, sql)[::2] == (U, code)


def test_mariadb_signal_of_a_project_says_nothing(mariadb) -> None:
    assert failing(mariadb, "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'ours'")[::2] == (U, "1644")


def test_mariadb_read_only_server_is_transient(mariadb) -> None:
    run(mariadb, "DROP USER IF EXISTS reader")
    run(mariadb, "CREATE USER reader")
    run(mariadb, "GRANT INSERT, SELECT ON hardening.* TO reader")
    run(mariadb, "SET GLOBAL read_only = 1")
    reader = mariadb.__class__({**mariadb.settings_dict, "USER": "reader"}, NAME)
    try:
        assert said(lambda: run(reader, "INSERT INTO stock VALUES (3, 0)")) == (
            *(T, "django.connection", "1290"),
        )
    finally:
        run(mariadb, "SET GLOBAL read_only = 0")
        reader.close()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"NAME": "no_such_database"}, "1049"),
        ({"USER": "nobody_known"}, "1045"),
        ({"PORT": "1"}, "2003"),
    ],
)
def test_mariadb_that_lets_nobody_in_is_transient(mariadb, changes, code) -> None:
    wrong = mariadb.__class__({**mariadb.settings_dict, **changes}, NAME)

    assert said(wrong.ensure_connection) == (T, "django.connection", code)


# SQLite.


def test_sqlite_locked_database_is_transient(sqlite) -> None:
    other = second(sqlite)
    try:
        run(other, "BEGIN IMMEDIATE")

        wanted = "UPDATE stock SET amount = 0 WHERE id = 1"
        assert failing(sqlite, wanted) == (T, "django.connection", "SQLITE_BUSY")
    finally:
        other.close()


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("INSERT INTO stock VALUES (1, 0)", "SQLITE_CONSTRAINT_PRIMARYKEY"),
        ("INSERT INTO stock VALUES (3, NULL)", "SQLITE_CONSTRAINT_NOTNULL"),
        ("INSERT INTO stock VALUES (3, -1)", "SQLITE_CONSTRAINT_CHECK"),
        ("INSERT INTO stock VALUES ('x', 0)", "SQLITE_MISMATCH"),
        ("SELEC 1", "SQLITE_ERROR"),
        ("SELECT no_such_function()", "SQLITE_ERROR"),
        ("SELECT zeroblob(2147483647)", "SQLITE_TOOBIG"),
    ],
)
def test_sqlite_refusals_are_permanent(sqlite, sql, code) -> None:
    kind, _rule, found = failing(sqlite, sql)

    assert (kind, found) == (P, code)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM no_such_table",
        "SELECT no_such_column FROM stock",
        "INSERT INTO stock (id, no_such_column) VALUES (3, 0)",
    ],
)
def test_what_a_migration_may_bring_to_sqlite_is_unknown(sqlite, sql) -> None:
    assert failing(sqlite, sql) == (U, "django.sqlite_schema", "SQLITE_ERROR")


def test_sqlite_file_that_is_no_database_is_permanent(sqlite, tmp_path, monkeypatch) -> None:
    (tmp_path / "text").write_text("no database at all " * 100)
    wrong = sqlite.__class__({**sqlite.settings_dict, "NAME": str(tmp_path / "text")}, NAME)
    opened: list[sqlite3.Connection] = []

    def connect(*args: Any, **kwargs: Any) -> Any:
        opened.append(sqlite3.connect(*args, **kwargs))
        return opened[-1]

    # Django leaves a connection open whose first statement fails.
    monkeypatch.setattr("django.db.backends.sqlite3.base.Database.connect", connect)
    try:
        assert said(lambda: run(wrong, "SELECT * FROM stock")) == (P, "django.database", "SQLITE_NOTADB")
    finally:
        for connection in opened:
            connection.close()
