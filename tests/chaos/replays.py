"""`python -m tests.chaos.replays --kills 500 --seed 7`: kills replayers, and counts what was lost or doubled.

Real Redis and PostgreSQL, and the runner as it is. Each replayer is a process that is killed (SIGKILL) at a
point that the seed chooses: before or after its n-th statement to PostgreSQL or write to Redis, which is
between any two lines that matter, or after so many milliseconds. Now and then two run at once, and people
pause, resume and cancel. A stub stands for the workers: it takes messages off the queue, refuses a work that
it has done, as a hardened worker does, and tells success, or hands in a letter.

Lost: an item that its operation sent, and no effect; or an item, a letter or an operation that hangs.
Doubled: a work of one key and replay number that had two effects, or an item that was sent as two works. The
ledger is the last line; 1 unless it balances.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import sys
import time
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from hardening.testing.servers import PostgresServer, RedisServer

__all__ = ["main"]

QUEUE = "payments"
STALE_SECONDS = 0.3
PATIENCE_SECONDS = 30.0
MOST_KILLS_OF_ONE = 8
FAILS_PERCENT = 15
_LISTS = [QUEUE, *(f"{QUEUE}\x06\x16{priority}" for priority in (3, 6, 9))]
"""Of kombu, one for each priority."""


def main(argv: Sequence[str] | None = None) -> int:
    """0: nothing was lost and nothing doubled."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.replays",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args(argv)
    seed = secrets.randbelow(10**6) if arguments.seed is None else arguments.seed
    with TemporaryDirectory() as directory, PostgresServer() as postgres, RedisServer() as redis:
        _set_up(postgres.url, redis.url)
        run = Run(seed=seed, kills_wanted=arguments.kills, directory=Path(directory), redis_url=redis.url)
        with run.consumer():
            run.go()
            run.wait_for_outcomes()
        found = run.ledger()
    for line in found.problems[:20]:
        print(line, file=sys.stderr)
    if run.broken:
        print(f"{run.broken} replayers ended with an error", file=sys.stderr)
    print(f"crash points: {', '.join(f'{name} {number}' for name, number in sorted(run.where.items()))}")
    print(
        f"replay: operations={run.operations} kills={run.kills} lost={found.lost} doubled={found.doubled} "
        f"seed={seed}",
        flush=True,
    )
    return 0 if found.lost == found.doubled == run.broken == 0 else 1


def _set_up(database_url: str, broker_url: str) -> None:
    import django
    from django.conf import settings
    from django.core.management import call_command

    from tests.helpers.databases import database_from_url

    settings.configure(
        SECRET_KEY="not a secret",
        USE_TZ=True,
        DATABASES={"default": database_from_url(database_url)},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "hardening", "dlq"],
        DLQ={"STALE_CLAIM_SECONDS": STALE_SECONDS},
        CELERY_BROKER_URL=broker_url,
    )
    django.setup()
    call_command("migrate", "dlq", verbosity=0)
    _app(broker_url).set_default()


def _app(broker_url: str) -> Any:
    from celery import Celery
    from kombu import Queue

    app = Celery("replays", broker=broker_url, set_as_current=False)
    app.conf.task_queues = [Queue(QUEUE, routing_key=QUEUE)]
    return app


@dataclass
class Found:
    """What the ledger says."""

    lost: int = 0
    doubled: int = 0
    problems: list[str] = field(default_factory=list)


class Run:
    """One seeded run."""

    def __init__(self, *, seed: int, kills_wanted: int, directory: Path, redis_url: str) -> None:
        self.kills_wanted = kills_wanted
        self.kills = self.operations = self.broken = 0
        self.where: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._directory = directory
        self._redis_url = redis_url

    # The run

    def go(self) -> None:
        """Operation after operation, until enough were killed."""
        while self.kills < self.kills_wanted:
            self._one_operation()

    def _one_operation(self) -> None:
        from dlq.operations import control
        from dlq.operations.states import Kind

        chance = self._random
        kind = Kind.COPY if chance.random() < 0.2 else Kind.REPLAY
        operation = self._made(kind, letters=chance.randint(5, 60))
        self.operations += 1
        control.start(operation.pk, by="chaos")
        _close()
        most = chance.randint(1, MOST_KILLS_OF_ONE)
        for _ in range(most):
            if self.kills >= self.kills_wanted or not self._has_work():
                break
            self._replay_and_kill(operation.pk)
            self._meddle(operation.pk)
        until = time.monotonic() + PATIENCE_SECONDS
        while self._has_work():
            if time.monotonic() > until:
                raise RuntimeError(f"an operation does not end: {self._standing()}")
            control.resume(operation.pk, by="chaos")
            _close()
            self._ended(_forked(_replay))

    def _made(self, kind: Any, *, letters: int) -> Any:
        from django.utils import timezone

        from dlq.models import DeadLetter
        from dlq.operations.making import make_operation
        from dlq.operations.pace import Pace, Ramp, Rate, Unlimited
        from dlq.rows import letter_row
        from tests.helpers.dlq_letters import letter

        now = timezone.now()
        rows = [letter_row(letter(), keys=(), now=now) for _ in range(letters)]
        DeadLetter.objects.bulk_create(rows)
        paces: list[Pace] = [Unlimited(), Unlimited(), Rate(per_second=400.0), Ramp(steps=(2, 10, 50))]
        return make_operation(
            letters=[row.pk for row in rows],
            by="chaos",
            kind=kind,
            pace=self._random.choice(paces),
            pause_above_percent=100,
            pause_on_same_cause=False,
        )

    def _replay_and_kill(self, operation_id: Any) -> None:
        """One replayer, or two, of which the first is killed."""
        chance = self._random
        if chance.random() < 0.25:
            pid = _forked(_replay)
            time.sleep(chance.uniform(0.0, 0.08))
            point = "by the clock"
            with_signal = True
        else:
            number = chance.randint(1, 60)
            after = chance.random() < 0.5
            point = f"{'after' if after else 'before'} a write"
            pid = _forked(lambda: _dying(number, after=after))
            with_signal = False
        other = _forked(_replay) if chance.random() < 0.1 else None
        if with_signal:
            os.kill(pid, signal.SIGKILL)
        if self._ended(pid) == -signal.SIGKILL:
            self.kills += 1
            self.where[point] += 1
        if other is not None:
            self._ended(other)

    def _ended(self, pid: int) -> int:
        """How a replayer ended; one that broke is no better than a lost letter."""
        status = _wait(pid)
        self.broken += status > 0
        return status

    def _meddle(self, operation_id: Any) -> None:
        from dlq.operations import control

        chance = self._random.random()
        if chance < 0.1:
            control.pause(operation_id, by="chaos")
        elif chance < 0.2:
            control.resume(operation_id, by="chaos")
        elif chance < 0.22:
            control.cancel(operation_id, by="chaos")
        _close()

    def _has_work(self) -> bool:
        from dlq.models import Operation
        from dlq.operations.duty import runnable
        from dlq.operations.states import OperationState

        try:
            return bool(runnable()) or Operation.objects.filter(state=OperationState.PAUSED).exists()
        finally:
            _close()

    def _standing(self) -> list[Any]:
        from django.db.models import Count

        from dlq.models import Operation

        rows = Operation.objects.exclude(state="closed").values("pk", "state", "pace", "step", "step_sent")
        return list(
            rows.annotate(number=Count("items")).values_list(
                "pk", "state", "pace", "step", "step_sent", "runner", "runner_until", "items__state", "number"
            )
        )

    # Outcomes

    @contextmanager
    def consumer(self) -> Iterator[None]:
        """The stub of the workers, in a process of its own."""
        stop = self._directory / "stop"
        effects = self._directory / "effects"
        pid = _forked(lambda: _consume(self._redis_url, effects, stop))
        try:
            yield
        finally:
            stop.touch()
            _wait(pid)

    def wait_for_outcomes(self) -> None:
        """Until every operation is closed, or nothing moves any more."""
        from dlq.models import Operation
        from dlq.operations.outcomes import settle

        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until and Operation.objects.exclude(state="closed").exists():
            settle(seconds=1.0)
            time.sleep(0.05)

    def ledger(self) -> Found:
        """Counted from the effects of the stub and from the rows."""
        from dlq.models import DeadLetter, Operation, OperationItem

        lines = (self._directory / "effects").read_text().splitlines()
        effects: Counter[tuple[str, int]] = Counter()
        works: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for line in lines:
            key, number, task_id, _ = json.loads(line)
            effects[key, number] += 1
            works[task_id].add((key, number))
        found = Found()
        found.doubled += _noted(found, "doubled", [k for k, number in effects.items() if number > 1])
        found.doubled += _noted(found, "two works under one id", [t for t, w in works.items() if len(w) > 1])
        sent = OperationItem.objects.filter(state__in=("succeeded", "came_back", "sent", "lost", "staged"))
        done = {work for each in works.values() for work in each}
        of_items = {(item.delivery_key, item.replay_number) for item in sent}
        found.lost += _noted(
            found, "no effect", [i.pk for i in sent if (i.delivery_key, i.replay_number) not in done]
        )
        # An item that was cancelled after an uncertain publish may have an effect, and says so as succeeded.
        found.doubled += _noted(found, "an effect of no item", sorted(done - of_items))
        unsettled = OperationItem.objects.exclude(state__in=("succeeded", "came_back", "not_sent"))
        found.lost += _noted(found, "an item hangs", list(unsettled.values_list("pk", "state")))
        found.lost += _noted(found, "a letter hangs", list(DeadLetter.objects.replaying().values_list("pk")))
        opened = Operation.objects.exclude(state="closed").values_list("pk", "state")
        found.lost += _noted(found, "an operation hangs", list(opened))
        wrong = OperationItem.objects.filter(
            state__in=("succeeded", "came_back"), operation__kind="replay"
        ).exclude(letter__state="replayed")
        found.lost += _noted(
            found, "sent, and its letter is not closed", list(wrong.values_list("letter_id"))
        )
        return found


def _noted(found: Found, what: str, which: Sequence[Any]) -> int:
    found.problems += [f"{what}: {each}" for each in which]
    return len(which)


# Replayers


def _replay() -> None:
    from dlq.operations.duty import operate
    from hardening.core.apps import celery_app

    until = time.monotonic() + 5.0
    operate(celery_app(), until_idle=True, stopped=lambda: time.monotonic() > until)


def _dying(number: int, *, after: bool) -> None:
    """Replays, and dies at its n-th write to the database or to Redis."""
    from django.db import connection
    from redis.connection import AbstractConnection

    left = [number]

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = write(*args, **options)
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counting

    redis: Any = AbstractConnection
    redis.send_packed_command = counted(redis.send_packed_command)
    setattr(connection, "commit", counted(connection.commit))  # noqa: B010 - mypy lets nobody assign
    with connection.execute_wrapper(lambda execute, *statement: counted(execute)(*statement)):
        _replay()


# The stub of the workers


def _consume(redis_url: str, effects: Path, stop: Path) -> None:
    import redis
    from kombu.utils.json import loads

    from dlq.operations.outcomes import succeeded
    from dlq.sink import DatabaseSink

    done: set[tuple[str, int, bytes]] = set()
    with redis.Redis.from_url(redis_url) as client, effects.open("a") as ledger:
        while True:
            popped: Any = client.brpop(_LISTS, timeout=0.2)
            if popped is None:
                if stop.exists():
                    return
                continue
            message = loads(popped[1])
            headers, body = message["headers"], b64decode(message["body"])
            key, number, task_id = headers["hardening_key"], headers["hardening_replay"], headers["id"]
            work = (key, number, body)
            fails = random.Random(task_id).randrange(100) < FAILS_PERCENT
            if work not in done:
                done.add(work)
                ledger.write(json.dumps([key, number, task_id, fails]) + "\n")
                ledger.flush()
            # Told again for each message, as of one whose worker died before it acknowledged.
            if fails:
                DatabaseSink().keep(_failed(headers, body))
            else:
                succeeded(letter_id=headers["hardening_letter"], task_id=task_id)


def _failed(headers: dict[str, Any], body: bytes) -> Any:
    from hardening.core.identity import identity_of
    from tests.helpers.dlq_letters import letter

    identity = identity_of(headers, headers["id"])
    return letter(
        task_id=headers["id"],
        delivery_key=identity.delivery_key,
        replay_number=identity.replay_number,
        replay_of=identity.replay_of,
        body=body,
        headers=headers,
    )


# Processes


def _forked(work: Callable[[], object]) -> int:
    _close()
    pid = os.fork()
    if not pid:
        _be_child(work)
    return pid


def _be_child(work: Callable[[], object]) -> NoReturn:
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _close() -> None:
    from django.db import connections

    connections.close_all()


if __name__ == "__main__":
    sys.exit(main())
