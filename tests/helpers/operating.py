"""A broker in memory for runners: it keeps what it takes, and fails as it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self
from uuid import UUID

from celery import Celery

from dlq.models import DeadLetter, Operation, OperationItem
from dlq.operations.control import start
from dlq.operations.making import make_operation
from dlq.operations.pace import Unlimited
from dlq.operations.publishing import Outgoing, Published
from dlq.operations.runner import Patience, Runner, Turn
from dlq.sink import DatabaseSink
from hardening.core.letter import DeadLetter as LetterRecord
from tests.helpers.dlq_letters import letter


class ListBroker:
    """Stands for a `Publisher`. `at_send` is called with each batch before it is taken."""

    def __init__(self, at_send: Callable[[Sequence[Outgoing]], object] = lambda _batch: None) -> None:
        self.app = Celery("listed", broker="memory://", set_as_current=False)
        self.taken: list[Outgoing] = []
        self.at_send = at_send
        self.down = ""
        self.refuses: set[str] = set()

    def send(self, messages: Sequence[Outgoing], into: Published) -> None:
        self.at_send(messages)
        if self.down:
            into.unreachable = self.down
            return
        for message in messages:
            if message.task_id in self.refuses:
                into.failed.append((message, "nobody takes it"))
            else:
                self.taken.append(message)
                into.sent.append(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None: ...

    def length_of(self, _queue: str) -> int | None:
        return None

    @property
    def ids(self) -> list[str]:
        return [message.task_id for message in self.taken]


def kept(record: LetterRecord | None = None, **fields: Any) -> DeadLetter:
    """A letter that is stored."""
    stored = record or letter(**fields)
    DatabaseSink().keep(stored)
    row: DeadLetter = DeadLetter.objects.get(task_id=stored.task_id)
    return row


def started(letters: Sequence[DeadLetter], **options: Any) -> Operation:
    """An operation that runs."""
    given = {"pace": Unlimited(), "by": "ops", **options}
    operation = make_operation(letters=[each.pk for each in letters], **given)
    assert start(operation.pk, by="ops")
    return operation


def run(operation: Operation, broker: ListBroker, **patience: Any) -> Turn:
    """One runner, until there is nothing to do."""
    return Runner(operation.pk, broker, Patience(**{"wait": False, **patience})).run()  # type: ignore[arg-type]


def states(operation: Operation) -> list[str]:
    """Of its items, in order."""
    return list(
        OperationItem.objects.filter(operation=operation).order_by("position").values_list("state", flat=True)
    )


def verdicts(operation: Operation) -> dict[UUID, str]:
    """Of its items, by letter."""
    return dict(OperationItem.objects.filter(operation=operation).values_list("letter_id", "verdict"))


def failed_again(message: Outgoing, **fields: Any) -> LetterRecord:
    """The letter of a message that was sent again and failed."""
    headers = dict(message.headers)
    return letter(
        task_id=message.task_id,
        delivery_key=headers["hardening_key"],
        replay_number=headers["hardening_replay"],
        replay_of=headers["hardening_letter"],
        body=message.body,
        headers=headers,
        **fields,
    )
