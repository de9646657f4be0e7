"""Messages, arrivals and consumers for tests of twins, and a store that can be down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hardening.leases.terms import Lease
from hardening.store import Entry, StoreUnavailable
from hardening.stores.memory import MemoryStore
from hardening.twins.records import Records
from hardening.twins.watch import Twins

LEASE_SECONDS = 12.0


class Clock:
    """Stands still until it is moved on; starts late enough that nothing seems to be just over."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Switchable(MemoryStore):
    """A store that does not answer as long as it is `down`; counts what it is asked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock=clock)
        self.down = False
        self.asked = 0
        self._meanwhile: dict[int, Callable[[], Any]] = {}

    def meanwhile(self, call: int, happens: Callable[[], Any]) -> None:
        """What another greenlet does before the so-manieth call from now on is answered."""
        self._meanwhile[self.asked + call] = happens

    def _answer(self) -> None:
        if self._lock.locked():
            return  # The look of a swap at what it replaces.
        self.asked += 1
        self._meanwhile.pop(self.asked, lambda: None)()
        if self.down:
            raise StoreUnavailable("no store")

    def read(self, key: str) -> Entry:
        self._answer()
        return super().read(key)

    def swap(self, key: str, *, version: int, value: Mapping[str, Any] | None, ttl_seconds: float) -> bool:
        self._answer()
        return super().swap(key, version=version, value=value, ttl_seconds=ttl_seconds)


class Deliveries(set[str]):
    """As kombu keeps them for Redis."""

    def get(self, tag: str) -> str:
        if tag not in self:
            raise KeyError(tag)
        return tag


@dataclass(eq=False)
class Message:
    """What twins look at in a message of kombu's."""

    channel: Any
    delivery_tag: str = "1"
    body: bytes = b"[[], {}, {}]"
    headers: dict[str, Any] = field(default_factory=lambda: {"id": "an id", "task": "a task"})
    delivery_info: dict[str, Any] = field(default_factory=lambda: {"redelivered": True})
    acknowledged: bool = False
    answers: list[str] = field(default_factory=list)

    def ack_log_error(self, logger: Any, errors: Any) -> None:
        self.answers.append("ack")

    def reject_log_error(self, logger: Any, errors: Any, requeue: bool = False) -> None:
        self.answers.append("requeue" if requeue else "reject")


@dataclass
class Prefetch:
    """kombu's prefetch count."""

    value: int = 1

    def increment_eventually(self, n: int = 1) -> None:
        self.value += n

    def decrement_eventually(self, n: int = 1) -> None:
        self.value -= n


def redis_channel(*tags: str) -> Any:
    return SimpleNamespace(qos=Deliveries(tags))


def amqp_channel() -> Any:
    return SimpleNamespace(is_open=True)


def consumer_on(channel: Any) -> Any:
    return SimpleNamespace(
        task_consumer=SimpleNamespace(channel=channel),
        qos=Prefetch(),
        call_soon=lambda function, *args: function(*args),
        max_prefetch_count=2,
        prefetch_multiplier=1,
        hostname="w1@host",
    )


@dataclass(eq=False)
class Arrived:
    """An arrival of reception, whose `proceed` asks the twins as reception would."""

    message: Message
    consumer: Any
    twins: Any
    task: Any = field(default_factory=lambda: SimpleNamespace(name="a task"))
    started: int = 0
    acknowledged: int = 0

    def acknowledge(self) -> None:
        self.acknowledged += 1

    def proceed(self) -> None:
        if not self.twins.receive(self):
            self.started += 1


class Running:
    """A request that runs; `end` is what HardenedRequest does at its end."""

    def __init__(self, message: Message, twins: Any, *, acks_late: bool = True) -> None:
        self._message = message
        self.twins = twins
        self.id = message.headers["id"]
        self.name = message.headers["task"]
        self.time_start: float | None = 1.0
        self.task = SimpleNamespace(acks_late=acks_late)
        self.ended_otherwise = False
        self.acknowledged = False
        self.request_dict: dict[str, Any] = {}
        self.twin: Any = None

    @property
    def message(self) -> Message:
        return self._message

    def end(self, *, success: bool = True) -> None:
        self.ended_otherwise = not success
        self.twins.end(self)
        self.acknowledged = True


def twins_of(store: Any, clock: Clock, name: str = "w1@host") -> Twins:
    """The twins of a worker of its own."""
    app: Any = SimpleNamespace()
    records = Records(app, lease_seconds=LEASE_SECONDS, store=store, clock=clock)
    twins = Twins(app, lease=Lease(), records=records, clock=clock)
    twins.is_named(name)
    twins.held._clock = clock
    return twins
