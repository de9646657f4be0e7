"""Delayed tasks on Redis: what 100,000 of them cost a worker, and how late those start that are due.

First the many, due in hours: memory of the worker before and after, the time that parking takes, and what
the worker does while they wait. Then, with all of these parked, some more whose due times are spread evenly:
how late each of them starts. Plain Celery keeps every one in its memory: it is measured with fewer, and
scaled.
"""

from __future__ import annotations

import json
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import redis
from celery import Celery

from bench.commands import counted
from bench.figures import summary
from bench.stand import Setup, Stand, cpu_seconds, wait_for
from hardening.testing.errors import ProcessError
from hardening.testing.processes import ManagedProcess
from hardening.testing.servers import RedisServer

__all__ = ["run"]

HOURS_SECONDS = 6 * 3600.0
WARM_UP_MESSAGES = 200
SAMPLE_SECONDS = 20.0
HEAD_START_SECONDS = 20.0
"""How long before the first of the sample is due, above twice the time that parking it should take."""

LOOK_SECONDS = 20.0
_PARK_WITHIN_SECONDS = 900.0
_SETTLE_SECONDS = 3.0
_AT_ONCE = 2000
_GOAL_MEGABYTES = 20
_GOAL_P99_SECONDS = 1.0
_MEGABYTE = 1024 * 1024
_DUE_KEY = "hardening:delayed:due"


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What is a process's alone (USS), in megabytes; of the parent also what it shares (RSS)."""

    parent: float
    parent_resident: float
    children: float

    @classmethod
    def of(cls, worker: ManagedProcess) -> Memory:
        """Of a worker now."""
        parent = psutil.Process(worker.pid)
        children = parent.children(recursive=True)
        return cls(
            parent=_own(parent),
            parent_resident=float(parent.memory_info().rss) / _MEGABYTE,
            children=sum(_own(child) for child in children),
        )


def _own(process: psutil.Process) -> float:
    return float(process.memory_full_info().uss) / _MEGABYTE


def run(options: Namespace) -> list[dict[str, Any]]:
    """Measure and print both variants."""
    rows = []
    for variant, messages in (("hardened", options.messages), ("plain", options.plain_messages)):
        if not messages:
            continue
        try:
            with ExitStack() as stack:
                row = _Delayed(variant, stack).measure(messages, options.messages, options.rate)
        except ProcessError as exc:
            row = {"variant": variant, "messages": messages, "problems": [str(exc)]}
        rows.append(row)
        _print(row)
    return rows


class _Delayed:
    """One worker and its servers."""

    def __init__(self, variant: str, stack: ExitStack) -> None:
        self._variant = variant
        self._broker = stack.enter_context(RedisServer())
        self._results = stack.enter_context(RedisServer())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._stand = Stand(self._broker.url, self._results.url, directory)
        self._client = stack.enter_context(redis.Redis.from_url(self._broker.url))
        self._publisher = self._stand.publisher()
        stack.callback(self._publisher.close)
        self._worker = self._stand.worker(Setup(variant=variant, pool="prefork", concurrency=2))
        stack.callback(self._worker.kill)

    def measure(self, messages: int, scaled_to: int, rate: int) -> dict[str, Any]:
        """All of it; the sample for hardened only, since plain has all timers in memory."""
        self._warm_up()
        before, server_before = Memory.of(self._worker), self._server_megabytes()
        cpu = cpu_seconds(self._worker)
        # At most so many are in the queue: publishing all goes on while the worker parks.
        began = time.monotonic()
        self._publish("noop", ((time.time() + HOURS_SECONDS, ()) for _ in range(messages)))
        self._wait_until_waiting(WARM_UP_MESSAGES + messages, _PARK_WITHIN_SECONDS)
        took = time.monotonic() - began
        cpu = cpu_seconds(self._worker) - cpu
        time.sleep(_SETTLE_SECONDS)
        after = Memory.of(self._worker)
        growth = after.parent - before.parent
        row = {
            "variant": self._variant,
            "messages": messages,
            "worker_megabytes_before": round(before.parent, 1),
            "worker_megabytes_after": round(after.parent, 1),
            "worker_growth_megabytes": round(growth, 1),
            "worker_resident_growth_megabytes": round(after.parent_resident - before.parent_resident, 1),
            "children_growth_megabytes": round(after.children - before.children, 1),
            "scaled_to": scaled_to,
            "scaled_growth_megabytes": round(growth * scaled_to / messages, 1),
            "goal_megabytes": _GOAL_MEGABYTES,
            "redis_growth_megabytes": round(self._server_megabytes() - server_before, 1),
            "taken_in_seconds": round(took, 1),
            "taken_per_second": round(messages / took, 1),
            "cpu_microseconds_each": round(cpu / messages * 1e6),
            **self._while_they_wait(),
        }
        if self._variant == "hardened":
            row |= self._drift(rate, messages / took, WARM_UP_MESSAGES + messages)
        return row

    def _warm_up(self) -> None:
        """What a worker loads at its first messages is not their cost."""
        done = self._stand.directory / "warm"
        with (
            self._publisher.connection_for_write() as connection,
            self._publisher.amqp.Producer(connection) as producer,
        ):
            for _ in range(WARM_UP_MESSAGES):
                self._publisher.send_task("noop", producer=producer)
            self._publisher.send_task("mark", (str(done),), producer=producer)
        if not wait_for(done.exists, self._worker, 60):
            raise ProcessError("the worker did not begin")
        self._publish("noop", [(time.time() + HOURS_SECONDS, ())] * WARM_UP_MESSAGES)
        self._wait_until_waiting(WARM_UP_MESSAGES, 60)
        time.sleep(_SETTLE_SECONDS)

    def _publish(self, task: str, calls: Iterable[tuple[float, tuple[Any, ...]]]) -> None:
        """Publish messages that are made from one of Celery's own, in a pipeline."""
        pattern = _pattern(self._publisher, self._client, task)
        pipe = self._client.pipeline(transaction=False)
        for number, (due, args) in enumerate(calls, 1):
            pipe.lpush("celery", pattern.message(due, args))
            if not number % _AT_ONCE:
                pipe.execute()
        pipe.execute()

    def _wait_until_waiting(self, count: int, seconds: float) -> None:
        if not wait_for(lambda: self._waiting() == count, self._worker, seconds):
            raise ProcessError(f"{self._waiting()} of {count} wait for their time after {seconds:g} s")

    def _waiting(self) -> int:
        """How many have left the queue and wait: in the store, or in the plain worker."""
        if self._client.llen("celery"):
            return -1
        if self._variant == "plain":
            return int(self._client.hlen("unacked"))
        return int(self._client.zcard(_DUE_KEY)) if not self._client.hlen("unacked.leased") else -1

    def _while_they_wait(self) -> dict[str, Any]:
        cpu = cpu_seconds(self._worker)
        with counted(self._broker) as commands:
            time.sleep(LOOK_SECONDS)
        cpu = cpu_seconds(self._worker) - cpu
        return {
            "idle_cpu_percent": round(100 * cpu / LOOK_SECONDS, 2),
            "idle_commands_per_second": round(commands.sent.total() / LOOK_SECONDS, 2),
            "idle_commands_in_scripts_per_second": round(commands.in_scripts.total() / LOOK_SECONDS, 2),
        }

    def _drift(self, rate: int, parked_per_second: float, parked: int) -> dict[str, Any]:
        """Park some more that are due soon, at even distances, and see when each starts."""
        late = self._stand.directory / "late"
        late.touch()
        count = int(rate * SAMPLE_SECONDS)
        first = time.time() + HEAD_START_SECONDS + 2 * count / parked_per_second
        dues = [first + number / rate for number in range(count)]
        self._publish("drift", [(due, (str(late), due)) for due in dues])
        self._wait_until_waiting(parked + count, first - time.time())
        parked_before_due = first - time.time()
        until = dues[-1] - time.time() + 60

        def started() -> list[float]:
            return [float(line) for line in late.read_text().split()]

        if not wait_for(lambda: len(started()) >= count, self._worker, until):
            raise ProcessError(f"{len(started())} of {count} tasks that were due have started")
        return {
            "sample": count,
            "sample_rate_per_second": rate,
            "sample_parked_before_due_seconds": round(parked_before_due, 1),
            "late_seconds": summary(started()),
            "goal_late_p99_seconds": _GOAL_P99_SECONDS,
        }

    def _server_megabytes(self) -> float:
        info: Any = self._client.info("memory")
        return float(info["used_memory"]) / _MEGABYTE


@dataclass(frozen=True)
class _Pattern:
    """One message of Celery's, to make others of."""

    envelope: dict[str, Any]

    def message(self, due: float, args: tuple[Any, ...]) -> str:
        """Another task id, another time, other arguments."""
        task_id = str(uuid4())
        headers = {
            **self.envelope["headers"],
            "id": task_id,
            "root_id": task_id,
            "eta": datetime.fromtimestamp(due, UTC).isoformat(),
        }
        properties = {
            **self.envelope["properties"],
            "correlation_id": task_id,
            "delivery_tag": str(uuid4()),
            "body_encoding": "utf-8",
        }
        links = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
        body = json.dumps([args, {}, links])
        return json.dumps({**self.envelope, "body": body, "headers": headers, "properties": properties})


def _pattern(publisher: Celery, client: redis.Redis, task: str) -> _Pattern:
    publisher.send_task(task, queue="pattern", countdown=60)
    found: Any = client.rpop("pattern")
    envelope = json.loads(found)
    envelope["properties"]["delivery_info"]["routing_key"] = "celery"
    return _Pattern(envelope)


def _print(row: dict[str, Any]) -> None:
    if "problems" in row:
        print(f"{row['variant']}: {row['problems'][0].splitlines()[0]}")
        return
    print(
        f"{row['variant']}: {row['messages']} delayed tasks were taken in {row['taken_in_seconds']} s "
        f"({row['taken_per_second']:.0f} a second, {row['cpu_microseconds_each']} us of CPU each)\n"
        f"  memory of the worker's parent (USS): {row['worker_megabytes_before']} -> "
        f"{row['worker_megabytes_after']} MB, grown by {row['worker_growth_megabytes']} MB (RSS by "
        f"{row['worker_resident_growth_megabytes']} MB)\n"
        f"  its children grew by {row['children_growth_megabytes']} MB, Redis by "
        f"{row['redis_growth_megabytes']} MB"
    )
    if row["messages"] != row["scaled_to"]:
        print(f"  scaled to {row['scaled_to']}, not measured: {row['scaled_growth_megabytes']} MB")
    else:
        print(f"  goal: under {row['goal_megabytes']} MB")
    print(
        f"  while they wait: {row['idle_cpu_percent']} % of a processor, "
        f"{row['idle_commands_per_second']} commands a second sent, "
        f"{row['idle_commands_in_scripts_per_second']} called in scripts"
    )
    if "late_seconds" in row:
        late = row["late_seconds"]
        print(
            f"  {row['sample']} of them due at {row['sample_rate_per_second']} a second started late by "
            f"{late['p50']} s (p50), {late['p99']} s (p99), {late['min']} to {late['max']} s; "
            f"goal: p99 under {row['goal_late_p99_seconds']:g} s"
        )
