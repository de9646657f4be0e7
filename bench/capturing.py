"""`python -m bench.capturing LETTERS`: bench/capture.py's process; prints its figures as JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import django
from celery.app.task import Context

from bench.figures import percentile

WARM_UP = 100
DEPTH = 12  # Frames of the traceback.
_ORDER = {"street": "1 High Street", "items": [{"sku": number} for number in range(10)]}
_ARGUMENTS = [41, "someone@example.com", _ORDER]
_NAMED = {"card_number": "4111111111111111", "currency": "EUR", "note": "x" * 300}


def main(letters: int) -> dict[str, float]:
    """Measure and return milliseconds."""
    if "mysql" in os.environ["BENCH_LETTERS"]:
        import pymysql

        # Django asks for mysqlclient's version.
        pymysql.version_info = (2, 2, 8, "final", 0)
        pymysql.install_as_MySQLdb()
    django.setup()
    from django.core.management import call_command
    from django.db import connections

    call_command("migrate", "dlq", database="letters", verbosity=0)
    logging.getLogger("hardening").addHandler(logging.NullHandler())
    with connections["letters"].cursor() as cursor:
        kind = "bytea" if connections["letters"].vendor == "postgresql" else "longblob"
        cursor.execute(f"CREATE TABLE bare (id char(36) PRIMARY KEY, payload {kind} NOT NULL)")
    insert, capture = _bare_insert(), _capture()
    for _ in range(WARM_UP):
        insert()
        capture()
    bare: list[float] = []
    captured: list[float] = []
    cpu: list[float] = []
    for _ in range(letters):
        _timed(insert, bare)
        _timed(capture, captured, cpu)
    from dlq.models import DeadLetter

    kept = DeadLetter.objects.filter(reason="permanent", attempts__number=3).count()
    assert kept == letters + WARM_UP, f"{kept} letters are there"
    found = {
        "bare_p50": percentile(bare, 0.5),
        "bare_p95": percentile(bare, 0.95),
        "capture_p50": percentile(captured, 0.5),
        "capture_p95": percentile(captured, 0.95),
        "cpu_p50": percentile(cpu, 0.5),
        "cpu_p95": percentile(cpu, 0.95),
    }
    found["over_p50"] = found["capture_p50"] - found["bare_p50"]
    found["over_p95"] = found["capture_p95"] - found["bare_p95"]
    return {name: round(1000 * seconds, 3) for name, seconds in found.items()}


def _timed(function: Callable[[], object], walls: list[float], cpus: list[float] | None = None) -> None:
    cpu, wall = time.thread_time(), time.perf_counter()
    function()
    walls.append(time.perf_counter() - wall)
    if cpus is not None:
        cpus.append(time.thread_time() - cpu)


def _bare_insert() -> Callable[[], object]:
    from django.db import connections

    payload = b"x" * 6000  # As many bytes as a letter of `_capture` has in all its columns.

    def insert() -> None:
        with connections["letters"].cursor() as cursor:
            cursor.execute("INSERT INTO bare (id, payload) VALUES (%s, %s)", [str(uuid4()), payload])

    return insert


def _capture() -> Callable[[], object]:
    from bench.project import app
    from hardening.capture import Delivery, keeper_for
    from hardening.core.identity import ATTEMPTS_HEADER
    from hardening.core.reasons import Reason
    from hardening.execution import Execution
    from hardening.retries.traffic import traffic_for

    @app.task(name="charge")
    def charge(order_id: int, email: str, order: object, card_number: str = "", **more: object) -> None:
        _fail(DEPTH, card_number)

    app.finalize()
    keeper, traffic = keeper_for(app), traffic_for(app)
    embedded = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
    body = json.dumps([_ARGUMENTS, _NAMED, embedded])

    def execution(task_id: str, retries: int, history: str | None) -> Any:
        headers: dict[str, Any] = {
            **dict.fromkeys(("parent_id", "eta", "expires", "group")),
            "lang": "py",
            "task": "charge",
            "id": task_id,
            "root_id": task_id,
            "retries": retries,
            "timelimit": [None, None],
            "argsrepr": repr(_ARGUMENTS),
            "kwargsrepr": repr(_NAMED),
            "origin": "gen1@host",
        }
        if history is not None:
            headers[ATTEMPTS_HEADER] = history
        properties = {"correlation_id": task_id, "reply_to": str(uuid4()), "delivery_mode": 2, "priority": 0}
        sent = Delivery(
            body, "application/json", "utf-8", headers, properties, "", "celery", False, os.getpid()
        )
        ran = Execution(charge, task_id, sent, keeper, traffic)
        ran.enter(Context(headers, args=_ARGUMENTS, kwargs=_NAMED, hostname="worker@host"))
        return ran

    carried = ""
    for retries in range(2):
        carried = execution("earlier", retries, carried).history_with(_error())

    def capture() -> None:
        execution(str(uuid4()), 2, carried).keep(error, Reason.PERMANENT)

    error = _error()
    return capture


def _error() -> Exception:
    try:
        _fail(DEPTH, _NAMED["card_number"])
    except ValueError as exc:
        return exc
    raise AssertionError("it fails")


def _fail(depth: int, card: str) -> None:
    if depth:
        _fail(depth - 1, card)
    raise ValueError(f"the card {card} was declined, password=hunter22")


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
