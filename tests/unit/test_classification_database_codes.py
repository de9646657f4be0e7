"""Codes of databases are read from whatever driver raised them, and every kind of code is told apart."""

from __future__ import annotations

from typing import Any

import psycopg
import pymysql
import pytest

from hardening.classification.database_codes import database_code, decide_database
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
            ("57P04", P),
            ("23505", P),
            ("XX000", None),
        ),
        *(("P0001", U), ("0A000", P), ("25P02", None)),
        *(("1213", T), ("1062", P), ("1644", U), ("4444", None), ("99999999999", None)),
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


def test_what_is_no_code_is_none() -> None:
    assert database_code(pymysql.OperationalError()) is None
    assert database_code(pymysql.OperationalError("text")) is None
    assert database_code(pymysql.OperationalError(True, "text")) is None
    assert database_code(ValueError(1213)) is None
    assert database_code(Driver(sqlstate=7, pgcode="too long", sqlite_errorcode="5")) is None
    assert database_code(Driver(sqlite_errorcode=5 | 99 << 8)) == "SQLITE_BUSY"
