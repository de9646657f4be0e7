"""Two Beats of each kind side by side: plain, RedBeat, celery-multibeat-scheduler, and ours, as they come.

One schedule, due every second. Too many or too few: messages less due times. While all is well, over 20 s;
from a SIGKILL of the one that sent last until another sends, and 5 s more; and so for a SIGSTOP that lasts
until then. Each wait ends after two minutes. The killed one is started again at once.

Rivals are installed into a directory of this benchmark's own, in the versions that it names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import redis

from bench.stand import ROOT, Setup, Stand
from hardening.testing.errors import ProcessTimeout
from hardening.testing.processes import ManagedProcess
from hardening.testing.servers import RedisServer

__all__ = ["run"]

RIVALS = ("celery-redbeat==2.4.2", "celery-multibeat-scheduler==0.1.0", "tenacity==9.1.4")
_PACKAGES = Path("build/bench-beats")
_QUEUE = "beat"
_CALM_SECONDS = 20.0
_AFTER_SECONDS = 5.0
_PATIENCE_SECONDS = 120.0
_SETTLE_SECONDS = 3.0
_DJANGO = [f"django.contrib.{name}" for name in ("auth", "contenttypes", "admin", "messages", "sessions")]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is measured. `shares`: its schedules are in a database that both Beats use."""

    name: str
    celery: dict[str, Any] = field(default_factory=dict)
    variant: str = "defaults"
    shares: bool = False


KINDS = (
    Kind(name="plain"),
    Kind(name="redbeat", celery={"CELERY_BEAT_SCHEDULER": "redbeat.RedBeatScheduler"}),
    Kind(
        name="multibeat",
        celery={
            "CELERY_BEAT_SCHEDULER": "multibeat.django.MultiBeatDatabaseScheduler",
            "INSTALLED_APPS": [*_DJANGO, "django_celery_beat", "bench.project"],
        },
        shares=True,
    ),
    Kind(name="ours", celery={"BEAT_LEADER": {"HEARTBEAT_FILE": ""}}, variant="hardened"),
)


class Witness:
    """Takes the messages, and knows when each came and which process sent it."""

    def __init__(self, broker_url: str) -> None:
        self._client = redis.Redis.from_url(broker_url)
        self._came: list[tuple[float, int]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no more."""
        self._stopping.set()
        self._thread.join(5)
        self._client.close()

    def since(self, moment: float, until: float = float("inf")) -> list[tuple[float, int]]:
        """Moments and processes of what came between."""
        return [each for each in list(self._came) if moment <= each[0] < until]

    def another(self, pid: int, since: float) -> float | None:
        """Seconds until another one sends; None: nobody does in time."""
        while time.monotonic() - since < _PATIENCE_SECONDS:
            for at, sender in self.since(since):
                if sender != pid:
                    return at - since
            time.sleep(0.05)
        return None

    def latest(self) -> int:
        """Who sends next."""
        before = len(self._came)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while len(self._came) == before:
            if time.monotonic() > deadline:
                raise ProcessTimeout("nobody sends")
            time.sleep(0.02)
        return self._came[-1][1]

    def surplus(self, since: float) -> int:
        """Messages less due times from then to now."""
        until = time.monotonic()
        return len(self.since(since, until)) - round(until - since)

    def _run(self) -> None:
        client: Any = self._client
        while not self._stopping.is_set():
            popped = client.brpop(_QUEUE, timeout=0.5)
            if popped is not None:
                origin = json.loads(popped[1])["headers"]["origin"]
                self._came.append((time.monotonic(), int(origin.partition("@")[0].removeprefix("gen"))))


class Pair:
    """Two Beats of a kind, on a broker of their own."""

    def __init__(self, kind: Kind, stand: Stand) -> None:
        self._kind = kind
        self._stand = stand
        self._number = 0
        self.running: dict[int, ManagedProcess] = {}

    def start(self) -> None:
        """One more."""
        self._number += 1
        entry = {"task": "noop", "schedule": 1.0, "options": {"queue": _QUEUE}}
        setup = Setup(
            variant=self._kind.variant,
            pool="prefork",
            concurrency=1,
            celery={
                "CELERY_BEAT_SCHEDULE": {"every second": entry},
                "CELERY_BEAT_SCHEDULE_FILENAME": str(self._stand.directory / f"schedule-{self._number}"),
                **self._kind.celery,
            },
        )
        env = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, _PACKAGES.resolve())))}
        if self._kind.shares:
            shared = {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(self._stand.directory / "shared.sqlite3"),
                "OPTIONS": {"timeout": 20},
            }
            env["BENCH_SERVER"] = json.dumps(shared)
        beat = self._stand.beat(setup, **env)
        self.running[beat.pid] = beat

    def kill(self, pid: int) -> None:
        """This one, or what is left of it."""
        self.running.pop(pid).kill()

    def logs(self) -> str:
        """The ends of them."""
        return "\n".join(beat.log_tail() for beat in self.running.values())

    def close(self) -> None:
        """Leave none."""
        for pid in list(self.running):
            self.kill(pid)


def run(options: Namespace) -> list[dict[str, Any]]:
    """Measure all kinds at once, and print them."""
    _install()
    chosen = [kind for kind in KINDS if options.only in kind.name]
    print(
        f"Two Beats, a schedule of 1 s; the one that sends is killed {options.takeovers} times, then stopped:"
    )
    print(
        f"{'kind':<12}{'calm 20 s':>10}{'takeover':>10}{'longest':>9}{'messages':>10}"
        f"{'SIGSTOP: takeover':>19}{'messages':>10}{'sending after':>15}"
    )
    with ThreadPoolExecutor(len(chosen) or 1) as pool:
        rows = list(pool.map(lambda kind: _row(kind, options.takeovers), chosen))
    for row in rows:
        _print(row)
    return rows


def _row(kind: Kind, kills: int) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": kind.name}
    with _Measured(kind) as (pair, witness):
        since = time.monotonic()
        time.sleep(_CALM_SECONDS)
        row["calm_surplus"] = witness.surplus(since)
        row["takeovers"], row["kill_surplus"] = _killed(pair, witness, kills)
    with _Measured(kind) as (pair, witness):
        row.update(_paused(pair, witness))
    return row


def _killed(pair: Pair, witness: Witness, kills: int) -> tuple[list[float | None], int]:
    took: list[float | None] = []
    surplus = 0
    for _ in range(kills):
        leader = witness.latest()
        since = time.monotonic()
        pair.kill(leader)
        pair.start()
        took.append(witness.another(leader, since))
        time.sleep(_AFTER_SECONDS)
        surplus += witness.surplus(since)
        if took[-1] is None:
            break  # Nobody leads: there is none to kill.
    return took, surplus


def _paused(pair: Pair, witness: Witness) -> dict[str, Any]:
    leader = witness.latest()
    since = time.monotonic()
    pair.running[leader].pause()
    took = witness.another(leader, since)
    time.sleep(_AFTER_SECONDS)
    pair.running[leader].resume()
    awake = time.monotonic()
    time.sleep(2 * _AFTER_SECONDS)
    senders = {pid for _, pid in witness.since(awake + _AFTER_SECONDS)}
    return {
        "pause_takeover": took,
        "pause_surplus": witness.surplus(since),
        "senders_after_pause": len(senders),
    }


class _Measured:
    """A pair that sends, for the time of the block."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._directory = tempfile.TemporaryDirectory()
        self._broker = RedisServer()

    def __enter__(self) -> tuple[Pair, Witness]:
        self._broker.start()
        url = self._broker.url
        self._pair = Pair(self._kind, Stand(url, "cache+memory://", Path(self._directory.name)))
        self._witness = Witness(url)
        try:
            for _ in range(2):
                self._pair.start()
            self._witness.latest()
        except BaseException:
            print(f"{self._kind.name}: {self._pair.logs()}")
            self.__exit__()
            raise
        time.sleep(_SETTLE_SECONDS)
        return self._pair, self._witness

    def __exit__(self, *_: object) -> None:
        self._pair.close()
        self._witness.stop()
        self._broker.close()
        self._directory.cleanup()


def _install() -> None:
    """Where they are not yet. Celery itself, and what they share with us, is ours."""
    known = _PACKAGES / "installed"
    if known.exists() and known.read_text() == "\n".join(RIVALS):
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    subprocess.run([*command, "--target", str(_PACKAGES), *RIVALS], check=True)
    known.write_text("\n".join(RIVALS))


def _print(row: dict[str, Any]) -> None:
    took = [each for each in row["takeovers"] if each is not None]
    all_took = len(took) == len(row["takeovers"])
    print(
        f"{row['kind']:<12}{row['calm_surplus']:>+10}"
        f"{_seconds(median(took) if all_took else None):>10}{_seconds(max(took) if all_took else None):>9}"
        f"{row['kill_surplus']:>+10}{_seconds(row['pause_takeover']):>19}{row['pause_surplus']:>+10}"
        f"{row['senders_after_pause']:>15}",
        flush=True,
    )


def _seconds(value: float | None) -> str:
    return f"> {_PATIENCE_SECONDS:.0f} s" if value is None else f"{value:.1f} s"
