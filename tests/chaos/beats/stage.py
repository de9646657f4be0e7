"""One stage in a process of its own: three Beats, their store behind a proxy, a worker, and the faults.

`python -m tests.chaos.beats.stage` is started by the kit, with its options in one JSON argument.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hardening.testing.errors import ProcessTimeout
from hardening.testing.processes import ManagedProcess
from hardening.testing.servers import LocalServer, PostgresServer, RedisServer
from hardening.testing.tcp_proxy import TcpProxy, tcp_proxy

from . import clocked
from .ledger import Account, Received, Row, account, due_times
from .plan import SCHEDULES, Action, Fault, Place, faults
from .witness import SENT, WORK, Witness

__all__ = ["Done", "Options", "Result"]

PROJECT = "tests.chaos.beats.project"
ROOT = Path(__file__).parents[3]
BEATS = 3
TASK = "chaos.tick"
_READY = "beat: Starting"
_PATIENCE_SECONDS = 40.0
_START_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a stage is told."""

    store: str
    source: str
    seed: int
    failovers: int
    broker_url: str
    directory: str

    @property
    def place(self) -> Place:
        """Its name."""
        return Place(store=self.store, source=self.source)


@dataclass(frozen=True, kw_only=True)
class Done:
    """A fault, and how long it took until another sent (the store's: until anybody did once it was back)."""

    fault: Fault
    takeover: float | None
    failover: bool


@dataclass(kw_only=True)
class Result:
    """What a stage tells."""

    place: str
    done: list[Done] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    problems: list[str] = field(default_factory=list)


class Stage:
    """`run` does it all."""

    def __init__(
        self, options: Options, store: LocalServer, proxy: TcpProxy, witness: Witness, stack: ExitStack
    ) -> None:
        self._options = options
        self._directory = Path(options.directory)
        self._store = store
        self._proxy = proxy
        self._witness = witness
        self._stack = stack
        self._schedules = self._schedules_database()
        self._jumps = clocked.libfaketime() is not None
        self._beats: list[ManagedProcess] = []
        self._result = Result(place=str(options.place))
        self._runs = self._directory / "runs"
        self._runs.touch()

    def run(self) -> Result:
        """Faults until there were enough failovers, then the account."""
        self._prepare()
        worker = self._start_worker()
        for number in range(BEATS):
            self._start_beat(number)
        worker.wait_for_log(" ready.", timeout=_START_SECONDS)
        plan = faults(self._options.seed, self._options.place, jumps=self._jumps)
        while sum(each.failover for each in self._result.done) < self._options.failovers:
            leader = self._settled()
            action = next(plan)
            time.sleep(action.after_seconds)
            done = _DO[action.fault](self, leader, action)
            self._result.done.append(done)
            print(f"{time.time():.1f} {time.monotonic():.1f} {action} {done}", flush=True)
        self._settled()
        self._close_account()
        return self._result

    # Parts

    def _prepare(self) -> None:
        os.environ.update(self._env(direct=True))
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0, skip_checks=True)
        if self._options.source == "database":
            _write_schedules()

    def _schedules_database(self) -> str:
        """Of stages whose store is no database."""
        if self._options.store == "redis" and self._options.source == "database":
            return self._stack.enter_context(PostgresServer()).url
        return f"sqlite:///{self._directory / 'database.sqlite3'}"

    def _env(self, *, direct: bool) -> dict[str, str]:
        """`direct`: not through the proxy."""
        port = self._store.port if direct else self._proxy.port
        leader: dict[str, Any] = {
            "SOURCE": self._options.source,
            "KEEP_ROWS": 1_000_000,
            "HEARTBEAT_FILE": "",
            "SCHEDULES": {"kept *": {"EXPIRES": False}},
        }
        if self._options.store == "redis":
            there = {"url": f"redis://{self._store.host}:{port}/0"}
            leader["LOCK"] = {"BACKEND": "beat_leader.locks.redis.RedisLock", "OPTIONS": there}
            leader["STORE"] = {"BACKEND": "beat_leader.stores.redis", "OPTIONS": there}
            database = self._schedules
        else:
            leader["LOCK"] = {"BACKEND": "beat_leader.locks.database.DatabaseLock"}
            leader["STORE"] = {"BACKEND": "beat_leader.stores.database"}
            database = f"postgresql://postgres@{self._store.host}:{port}/postgres"
        schedule = {
            name: {"task": TASK, "schedule": every, "options": {"queue": SENT}}
            for name, every in SCHEDULES.items()
        }
        return {
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": f"{PROJECT}.settings",
            "CHAOS_BROKER": self._options.broker_url,
            "CHAOS_DATABASE": database,
            "CHAOS_LEADER": json.dumps(leader),
            "CHAOS_SCHEDULE": json.dumps(schedule if self._options.source == "code" else {}),
            "CHAOS_RUNS": str(self._runs),
        }

    def _start_worker(self) -> ManagedProcess:
        command = [sys.executable, "-m", "celery", "-A", PROJECT, "worker", "-l", "INFO", "-Q", WORK]
        command += ["-c", "1", "--without-mingle", "--without-gossip", "-n", "worker@chaos"]
        worker = ManagedProcess(
            command,
            log_path=self._directory / "worker.log",
            env={**os.environ, **self._env(direct=True)},
            cwd=ROOT,
            name="worker",
        )
        return self._stack.enter_context(worker)

    def _start_beat(self, number: int) -> None:
        beat = ManagedProcess(
            [sys.executable, "-m", "tests.chaos.beats.clocked", "-A", PROJECT, "beat", "-l", "INFO"],
            log_path=self._directory / f"beat-{number}.log",
            env={
                **os.environ,
                **self._env(direct=False),
                **clocked.environment(self._clock(number)),
            },
            cwd=ROOT,
            name=f"beat {number}",
        )
        self._beats.append(self._stack.enter_context(beat))

    def _clock(self, number: int) -> Path:
        return self._directory / f"clock-{number}"

    # Faults

    def _settled(self) -> ManagedProcess:
        """Whoever leads, when all are up and it has just sent something."""
        since = time.monotonic()
        for beat in self._beats:
            beat.wait_for_log(_READY, timeout=_START_SECONDS)
        message = self._witness.wait(lambda _: True, since=since, seconds=_START_SECONDS)
        if message is None:
            raise ProcessTimeout(f"nobody sends\n{self._tails()}")
        return next(beat for beat in self._beats if beat.pid == message.pid)

    def _kill(self, leader: ManagedProcess, action: Action) -> Done:
        self._at_a_message(leader, action)
        pid, since = leader.pid, time.monotonic()
        leader.kill()
        leader.start()
        return self._taken_over(action, pid, since)

    def _stop(self, leader: ManagedProcess, action: Action) -> Done:
        pid, since = leader.pid, time.monotonic()
        if leader.stop() != 0:
            self._problem(f"a Beat ended with {leader.returncode} at SIGTERM: {leader.log_tail()}")
        leader.start()
        return self._taken_over(action, pid, since)

    def _long_pause(self, leader: ManagedProcess, action: Action) -> Done:
        self._at_a_message(leader, action)
        since = time.monotonic()
        leader.pause()
        done = self._taken_over(action, leader.pid, since)
        time.sleep(max(0.0, since + action.seconds - time.monotonic()))
        leader.resume()
        return done

    def _short_pause(self, leader: ManagedProcess, action: Action) -> Done:
        self._at_a_message(leader, action)
        leader.pause()
        time.sleep(action.seconds)
        since = time.monotonic()
        leader.resume()
        return self._goes_on(action, leader.pid, since)

    def _kill_store(self, leader: ManagedProcess, action: Action) -> Done:
        self._at_a_message(leader, action)
        self._store.kill()
        time.sleep(action.seconds)
        self._store.start()
        return self._goes_on(action, leader.pid, time.monotonic())

    def _cut_off(self, leader: ManagedProcess, action: Action) -> Done:
        self._at_a_message(leader, action)
        self._proxy.swallows = True
        time.sleep(action.seconds)
        since = time.monotonic()
        self._proxy.cut()
        return self._goes_on(action, leader.pid, since)

    def _jump(self, leader: ManagedProcess, action: Action) -> Done:
        since = time.monotonic()
        clocked.jump(self._clock(self._beats.index(leader)), action.seconds)
        time.sleep(2.0)
        return self._goes_on(action, leader.pid, since)

    def _at_a_message(self, leader: ManagedProcess, action: Action) -> None:
        if action.at_a_message:
            pid = leader.pid
            self._witness.wait(lambda message: message.pid == pid, since=time.monotonic(), seconds=5.0)

    def _taken_over(self, action: Action, pid: int, since: float) -> Done:
        message = self._witness.wait(lambda each: each.pid != pid, since=since, seconds=_PATIENCE_SECONDS)
        if message is None:
            self._problem(f"{action}: no other sent within {_PATIENCE_SECONDS:g} s")
            return Done(fault=action.fault, takeover=None, failover=False)
        return Done(fault=action.fault, takeover=message.at - since, failover=True)

    def _goes_on(self, action: Action, pid: int, since: float) -> Done:
        message = self._witness.wait(lambda each: True, since=since, seconds=_PATIENCE_SECONDS)
        if message is None:
            self._problem(f"{action}: nobody sent within {_PATIENCE_SECONDS:g} s")
            return Done(fault=action.fault, takeover=None, failover=False)
        return Done(fault=action.fault, takeover=message.at - since, failover=message.pid != pid)

    def _problem(self, text: str) -> None:
        self._result.problems.append(text)
        print(text, flush=True)

    def _tails(self) -> str:
        return "\n".join(beat.log_tail() for beat in self._beats)

    # The account

    def _close_account(self) -> None:
        time.sleep(2.0)
        until_ms = int(time.time() * 1000)
        time.sleep(2.0)
        for beat in self._beats:
            beat.stop()
        received = [each for each in self._witness.messages if each.due_ms <= until_ms]
        (self._directory / "messages.json").write_text(json.dumps([asdict(each) for each in received]))
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (found := self._account(received, until_ms)).missed and time.monotonic() < deadline:
            time.sleep(0.5)  # The worker is not done yet.
        self._result.account = found
        self._result.problems += found.problems

    def _account(self, received: list[Received], until_ms: int) -> Account:
        rows, anchors, letters = _in_store()
        expected = {
            name: due_times(anchors[name], round(every * 1000), until_ms) for name, every in SCHEDULES.items()
        }
        must_run = frozenset(name for name in SCHEDULES if name.startswith("kept"))
        return account(expected, received, self._ran(), rows, letters=letters, must_run=must_run)

    def _ran(self) -> list[str]:
        return [line.split("\t")[0] for line in self._runs.read_text().splitlines()]


_DO: dict[Fault, Callable[[Stage, ManagedProcess, Action], Done]] = {
    Fault.KILL: Stage._kill,
    Fault.LONG_PAUSE: Stage._long_pause,
    Fault.SHORT_PAUSE: Stage._short_pause,
    Fault.STOP: Stage._stop,
    Fault.STORE_KILL: Stage._kill_store,
    Fault.CUT: Stage._cut_off,
    Fault.JUMP: Stage._jump,
}


def _write_schedules() -> None:
    from django_celery_beat.models import IntervalSchedule, PeriodicTask

    for name, every in SCHEDULES.items():
        interval, _ = IntervalSchedule.objects.get_or_create(
            every=round(every * 1_000_000), period=IntervalSchedule.MICROSECONDS
        )
        PeriodicTask.objects.create(name=name, task=TASK, queue=SENT, interval=interval)


def _in_store() -> tuple[list[Row], dict[str, int], set[str]]:
    """All rows, from when each schedule counts, and the task ids of all dead letters."""
    from beat_leader.choice import chosen_ticks
    from dlq.models import DeadLetter
    from hardening.core.apps import celery_app

    ticks = chosen_ticks(celery_app())
    found: list[Row] = []
    before: tuple[int, str] | None = None
    while page := ticks.history(limit=1000, before=before):
        before = (page[-1].due_ms, page[-1].schedule)
        found += [
            Row(
                schedule=each.schedule,
                due_ms=each.due_ms,
                state=str(each.state),
                why=each.why,
                first_ms=each.due_ms if each.first_ms is None else each.first_ms,
                outcome=str(each.outcome),
            )
            for each in page
        ]
    anchors = {name: cursor.anchor_ms for name, cursor in ticks.cursors().items()}
    ticks.close()
    return found, anchors, set(DeadLetter.objects.values_list("task_id", flat=True))


@contextmanager
def _opened(options: Options) -> Iterator[Stage]:
    server = RedisServer(append_only=True) if options.store == "redis" else PostgresServer()
    witness = Witness(options.broker_url)
    with server as store, tcp_proxy(store.host, store.port) as proxy, ExitStack() as stack:
        stack.callback(witness.stop)
        witness.start()
        yield Stage(options, store, proxy, witness, stack)


def main(argument: str) -> int:
    """Writes result.json into its directory."""
    options = Options(**json.loads(argument))
    with _opened(options) as stage:
        result = stage.run()
    (Path(options.directory) / "result.json").write_text(json.dumps(asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
