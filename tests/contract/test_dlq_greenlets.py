"""Greenlets of one process keep letters in one SQLite file: none stops the one that it waits for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PATCHED = """
from gevent import monkey
monkey.patch_all()
import gc
import django, gevent
django.setup()
from django.core.management import call_command
from django.db import connection, connections, transaction
from dlq.models import DeadLetter
from dlq.sink import DatabaseSink
from tests.helpers.dlq_letters import letter

# So long that a greenlet which waits in SQLite's code cannot keep its letter in time.
connections.settings["default"]["OPTIONS"] = {"timeout": 20, "transaction_mode": MODE}
connection.close()
call_command("migrate", "dlq", verbosity=0)

def keep():
    try:
        connection.ensure_connection()
        DatabaseSink().keep(letter())
    finally:
        connection.close()
"""

HELD_BY_A_TASK = """
def task():
    with transaction.atomic():
        DeadLetter.objects.update(worker="somebody")
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM dlq_attempt")
        keepers.append(gevent.spawn(keep))
        gevent.sleep(0)  # The keeper meets the lock; what waits for an answer here goes on only after it.

keepers = []
gevent.spawn(task).get()
for each in keepers:
    each.get()
assert DeadLetter.objects.count() == 1
"""

GARBAGE = """
turns = []

class Garbage:
    # Found by the collector alone. Its finalizer waits, as that of a result of Celery's does.
    def __init__(self):
        self.itself = self

    def __del__(self):
        if gevent.getcurrent() in keepers:
            Garbage()
            turns.append(connection.in_atomic_block)
            gevent.sleep(0)

def keep_amid_garbage():
    connection.ensure_connection()
    Garbage()
    gc.set_threshold(1)  # It is collected as often as can be.
    keep()

keepers = [gevent.Greenlet(keep_amid_garbage) for _ in range(5)]
for each in keepers:
    each.start()
for each in keepers:
    each.get()
keepers.clear()
assert DeadLetter.objects.count() == 5
assert turns and not any(turns), turns
"""


def run(code: str, directory: Path) -> None:
    url = f"sqlite:///{directory / 'letters.sqlite3'}"
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "TEST_DATABASE_URL": url}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, timeout=120, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", ["DEFERRED", "IMMEDIATE"])
def test_a_letter_waits_for_the_transaction_of_another_greenlet_and_lets_it_end(mode, tmp_path) -> None:
    run(f"MODE = {mode!r}\n{PATCHED}{HELD_BY_A_TASK}", tmp_path)


@pytest.mark.parametrize("mode", ["DEFERRED", "IMMEDIATE"])
def test_a_finalizer_that_waits_does_not_interrupt_the_keeping_of_a_letter(mode, tmp_path) -> None:
    run(f"MODE = {mode!r}\n{PATCHED}{GARBAGE}", tmp_path)
