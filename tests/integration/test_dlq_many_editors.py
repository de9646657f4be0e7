"""However many people edit one letter at once, one of them has it: one message is on the broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from celery import Celery
from django.db import connections
from kombu import Queue

from dlq.models import DeadLetter, Operation, OperationItem
from dlq.operations.control import start
from dlq.operations.editing import editable, make_edit_operation
from dlq.operations.runner import run_operation
from dlq.operations.states import ItemState
from tests.helpers.dlq_databases import letters_in
from tests.helpers.operating import kept

EDITORS = 100


@pytest.fixture(autouse=True)
def alias(request, tmp_path, settings, django_db_blocker) -> Iterator[str]:
    with django_db_blocker.unblock(), letters_in("postgres", request, tmp_path) as name:
        settings.DLQ = {"DATABASE": name}
        yield name


def test_of_a_hundred_who_edit_one_letter_at_once_one_sends_it(alias, redis_url) -> None:
    app = Celery("edited", broker=redis_url, set_as_current=False)
    app.conf.task_queues = [Queue("payments")]

    @app.task(name="shop.tasks.charge")
    def charge(order_id: int, password: str, card_number: str) -> None: ...

    letter = kept()
    together = Barrier(EDITORS)

    def editor(number: int) -> None:
        try:
            row = DeadLetter.objects.get(pk=letter.pk)
            shown = {field.name: field.value_json for field in editable(row, app=app).fields}
            together.wait(60)
            edited = {**shown, "order_id": str(number)}
            operation, _ = make_edit_operation(row, edited, by=f"editor {number}", app=app)
            start(operation.pk, by=f"editor {number}")
            run_operation(operation.pk, app=app)
        finally:
            connections[alias].close()

    with ThreadPoolExecutor(EDITORS) as pool:
        list(pool.map(editor, range(1_000, 1_000 + EDITORS)))

    with app.connection() as connection:
        queue = Queue("payments")(connection.default_channel)
        taken = []
        while message := queue.get(no_ack=True):
            taken.append(message)
    ended = Counter(OperationItem.objects.values_list("state", "verdict"))
    winner = Operation.objects.get(items__state=ItemState.SENT)
    assert len(taken) == 1
    assert sum(ended.values()) == EDITORS
    assert ended[ItemState.SENT, ""] == 1
    assert sum(number for (state, _), number in ended.items() if state == ItemState.NOT_SENT) == EDITORS - 1
    assert f"editor {taken[0].payload[0][0]}" == winner.created_by
