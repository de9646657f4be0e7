"""Codes of databases are read from whatever driver raised them, and every kind of code is told apart."""

from __future__ import annotations

from typing import Any

import psycopg
import pymysql
import pytest

from hardening.classification.database_codes import (
    database_code,
    decide_database,
    is_sqlite_schema,
    is_stale_plan,
)
from hardening.classification.verdict import Kind

P, T, U = Kind.PERMANENT, Kind.TRANSIENT, Kind.UNKNOWN


def refused(*answers: str) -> str | None:
    return database_code(psycopg.OperationalError("connection failed: " + "\n".join(answers)))


def test_a_refused_log_in_is_known_by_the_servers_words() -> None:
    assert refused('FATAL:  database "shop" does not exist') == "3D000"
    assert refused('FATAL:  password authentication failed for user "shop"') == "28P01"
    assert refused("fe_sendauth: no password supplied") == "28P01"
    assert refused('FATAL:  role "shop" does not exist') == "28000"
    assert refused('FATAL:  no pg_hba.conf entry for host "10.0.0.1"') == "28000"


@pytest.mark.parametrize(
    "other", ["Connection refused", "timeout expired", "FATAL:  the database system is starting up"]
)
def test_of_several_servers_one_that_may_answer_later_leaves_it_open(other) -> None:
    assert refused('FATAL:  database "shop" does not exist', other) is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *(
            ("40001", T),
            ("40002", P),
            ("08006", T),
            ("53300", T),
            ("57P04", T),
            ("23505", P),
            ("XX000", None),
        ),
        *(("P0001", U), ("0A000", P), ("25P02", None), ("42601", P), ("42501", P)),
        # Prepared statements and cursors behind a pooler, log in, no such database.
        *(("26000", T), ("34000", T), ("42P05", T), ("28P01", T), ("28000", T), ("3D000", T)),
        # What a migration may bring.
        *(("42703", U), ("42P01", U), ("42883", U), ("42704", U), ("1146", U), ("1054", U)),
        *(("1213", T), ("1062", P), ("1644", U), ("4444", None), ("99999999999", None)),
        *(("1044", T), ("1045", T), ("1049", T), ("1698", T), ("1142", P)),
        *(("SQLITE_IOERR_READ", T), ("SQLITE_BUSY_SNAPSHOT", T), ("SQLITE_READONLY", P), ("SQLITE_", None)),
        *(("", None), ("503", None), ("ECONNRESET", None)),
    ],
)
def test_each_kind_of_code_says_what_its_database_means(code, kind) -> None:
    assert decide_database(code) is kind


class Driver(Exception):
    """Stands for drivers that are not installed here, by the module that they are in."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args)
        self.__dict__.update(attributes)


def test_other_drivers_are_read_by_their_attributes() -> None:
    connector = type("OperationalError", (Driver,), {"__module__": "mysql.connector.errors"})
    psycopg2 = type("OperationalError", (Driver,), {"__module__": "psycopg2"})

    assert database_code(connector("lost", errno=2013, sqlstate="HY000")) == "2013"
    assert database_code(psycopg2("deadlock", pgcode="40P01")) == "40P01"
    assert database_code(psycopg2("connection lost", pgcode=None)) is None


def test_a_stale_plan_is_known_in_any_language_of_the_server() -> None:
    class Diagnosed(psycopg.errors.FeatureNotSupported):
        def __init__(self, text: str, function: str) -> None:
            super().__init__(text)
            self.function = function

        @property
        def diag(self) -> Any:
            return type("Diagnostic", (), {"source_function": self.function})

    assert is_stale_plan(
        Diagnosed("gecachter Plan darf den Ergebnistyp nicht ändern", "RevalidateCachedQuery")
    )
    assert not is_stale_plan(
        Diagnosed("FOR UPDATE is not allowed with DISTINCT clause", "CheckSelectLocking")
    )
    assert is_stale_plan(psycopg.errors.FeatureNotSupported("cached plan must not change result type"))
    assert not is_stale_plan(ValueError("cached plan must not change result type"))


def test_of_sqlites_errors_without_a_code_those_about_tables_and_columns_are_known() -> None:
    def says(text: str, name: str = "SQLITE_ERROR") -> bool:
        return is_sqlite_schema(Driver(text, sqlite_errorname=name))

    assert says("no such table: shop_order")
    assert says("no such column: shop_order.paid")
    assert says("table shop_order has no column named paid")
    assert not says('near "SELEC": syntax error')
    assert not says("no such function: paid")
    assert not says("no such table: shop_order", "SQLITE_BUSY")
    assert not is_sqlite_schema(ValueError("no such table: shop_order"))


def test_what_is_no_code_is_none() -> None:
    assert database_code(pymysql.OperationalError()) is None
    assert database_code(pymysql.OperationalError("text")) is None
    assert database_code(pymysql.OperationalError(True, "text")) is None
    assert database_code(ValueError(1213)) is None
    assert database_code(Driver(sqlstate=7, pgcode="too long", sqlite_errorcode="5")) is None
    assert database_code(Driver(sqlite_errorcode=5 | 99 << 8)) == "SQLITE_BUSY"
