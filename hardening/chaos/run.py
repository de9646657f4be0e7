"""One run: start everything, publish, strike, watch until all is settled, and draw up the ledger."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .causes import UNKNOWN
from .errors import ChaosError
from .evidence import Evidence
from .facts import Hit, Letter, Published
from .faults import Striker
from .fleet import Fleet
from .ledger import FAILURE, REVOKED, Fate, Ledger, draw_up
from .options import PLAIN, Options
from .plan import Fault, Plan, make_plan
from .publisher import Publisher
from .records import Journal, Witnessed, hit_as_line, published_of
from .stage import Stage

__all__ = ["Outcome", "interruptible", "run"]

Say = Callable[[str], None]

_TICK_SECONDS = 0.02
_LOOK_SECONDS = 1.0
_READY_SECONDS = 120.0
_QUIET_LOOKS = 2
"""So many looks in a row must find nothing: a message in mid-move is in no place for a moment."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All that a report needs."""

    options: Options
    plan: Plan
    ledger: Ledger
    hits: tuple[Hit, ...]
    not_struck: int
    seconds: float
    ended: str
    """Why it ended: "settled", or what was not waited for any longer."""

    publish_failures: int
    poison_starts: Mapping[str, int]
    database: str
    history: Mapping[str, list[str]]
    """What is known of each task that is lost, pending, or ran twice for no known cause."""


def run(options: Options, directory: Path, say: Say) -> Outcome:
    """Raises ChaosError where it could not be carried through; Unsafe before anything was sent."""
    say("starting a broker, a result store and a database of our own")
    with Stage(options, directory) as stage:
        return _Run(options, stage, say).outcome()


class _Run:
    def __init__(self, options: Options, stage: Stage, say: Say) -> None:
        self._options = options
        self._stage = stage
        self._say = say
        self._database = "PostgreSQL" if stage.postgres else "SQLite"
        self._plan = make_plan(
            seed=options.seed,
            tasks=options.tasks,
            pool=options.pool,
            without=options.without,
            faults=options.faults,
        )
        self._journal = Journal(stage.directory / "published.jsonl")
        self._witnessed = Witnessed(stage.witness)
        self._faults_file = (stage.directory / "faults.jsonl").open("a", buffering=1)
        self._hits: list[Hit] = []
        self._fleet = Fleet(stage, self._note, self._is_ready)
        self._striker = Striker(stage, self._fleet, self._witnessed, self._note)
        self._app: Any = stage.enter_project()
        keys = {key for item in self._plan.items for key in item.keys}
        self._evidence = Evidence(stage, self._app, keys)
        self._publisher = Publisher(
            self._app,
            self._plan,
            self._journal,
            started=lambda: len(self._witnessed.started),
            ahead=max(40, 6 * options.workers * options.concurrency),
            queue=stage.said["queue"],
            own=options.send,
        )
        self._strikes = list(self._plan.strikes)
        self._letters: list[Letter] = []
        self._states: dict[str, str] = {}
        self._began = time.monotonic()

    def outcome(self) -> Outcome:
        """Carry it out."""
        try:
            self._fleet.start()
            self._wait_until_ready()
            self._say(
                f"{self._plan.tasks} tasks, {len(self._strikes)} faults, {self._options.workers} workers "
                f"({self._options.pool}, {self._options.concurrency} each), {self._options.broker}, "
                f"{self._database}, seed {self._options.seed}"
            )
            self._began = time.monotonic()
            self._publisher.start()
            ended = self._watch()
            seconds = time.monotonic() - self._began
        finally:
            self._publisher.stop()
            self._fleet.stop()
        self._witnessed.look()
        ledger = self._ledger(self._retried(partial(self._evidence.held, peek=True)))
        outcome = Outcome(
            options=self._options,
            plan=self._plan,
            ledger=ledger,
            hits=tuple(self._hits),
            not_struck=len(self._strikes),
            seconds=seconds,
            ended=ended,
            publish_failures=self._publisher.failures,
            poison_starts=self._poison_starts(),
            database=self._database,
            history=self._history(ledger),
        )
        self._journal.close()
        self._witnessed.close()
        self._faults_file.close()
        return outcome

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while len(self._fleet.up()) < self._options.workers:
            self._tick()
            if time.monotonic() > deadline:
                worker = self._fleet.workers[0]
                raise ChaosError(
                    f"the workers are not ready after {_READY_SECONDS:g} s\n{worker.process.log_tail()}"
                )

    def _watch(self) -> str:
        """Until all is settled, or no longer waited for; says which."""
        looked = moved = time.monotonic()
        settled = quiet = 0
        while True:
            self._tick()
            self._strike()
            now = time.monotonic()
            if now - looked < _LOOK_SECONDS:
                continue
            if self._publisher.error is not None and not self._publisher.is_alive():
                raise ChaosError(f"publishing failed: {self._publisher.error!r}") from self._publisher.error
            try:
                open_keys = self._look()
                is_quiet = not self._publisher.is_alive() and not open_keys and not self._evidence.held()
            # Of any client library: a server is away, or a stopped worker holds a lock in it. The next look
            # comes in a second; waiting here would keep those that are stopped from being resumed.
            except Exception:
                open_keys, is_quiet = None, False
            if open_keys is not None:
                done = len(self._published()) - len(open_keys)
                if done != settled:
                    settled, moved = done, time.monotonic()
            quiet = quiet + 1 if is_quiet else 0
            if quiet >= _QUIET_LOOKS:
                return "settled"
            looked = time.monotonic()
            if looked - moved > self._options.patience_seconds:
                return f"no task more was settled in {self._options.patience_seconds:g} s"
            if looked - self._began > self._options.limit_seconds:
                return f"the limit of {self._options.limit_seconds:g} s"

    def _tick(self) -> None:
        self._witnessed.look()
        self._fleet.tick()
        time.sleep(_TICK_SECONDS)

    def _strike(self) -> None:
        """The strikes that are due, one a tick; those on the workers wait for one that is up."""
        progress = len(self._witnessed.ended)
        for strike in self._strikes:
            if strike.after > progress:
                return
            if self._striker.strike(strike):
                self._strikes.remove(strike)
                return
            if strike.fault in (Fault.BROKER, Fault.CUT, Fault.DATABASE):
                return

    def _look(self) -> list[str]:
        """The keys whose fate is open. Letters and results are asked for only while there are some."""
        published = self._published()
        waiting = _open(published, self._witnessed.ended, self._letters, self._states)
        if waiting and not self._publisher.is_alive():
            self._letters = self._evidence.letters()
            self._states.update(self._evidence.states(waiting))
            waiting = _open(published, self._witnessed.ended, self._letters, self._states)
        failed = {key for key in waiting if self._states.get(key) == FAILURE}
        return [key for key in waiting if key not in failed or self._options.variant != PLAIN]

    def _retried(self, look: Callable[[], Any]) -> Any:
        """A server may have been restarted since the last look."""
        for attempt in range(10):
            try:
                return look()
            # Of any client library; the last one is raised.
            except Exception:
                if attempt == 9:
                    raise
                time.sleep(0.5)
        raise AssertionError("not reached")

    def _published(self) -> list[Published]:
        return published_of(
            self._plan.items if not self._options.send else (),
            self._journal,
            self._witnessed,
        )

    def _ledger(self, held: list[str]) -> Ledger:
        published = self._published()
        self._letters = self._retried(self._evidence.letters)
        states = self._retried(partial(self._evidence.states, [each.key for each in published]))
        return draw_up(
            published,
            marks=self._witnessed.marks,
            letters=self._letters,
            states=states,
            held=held,
            hits=self._hits,
            failures_are_dead=self._options.variant == PLAIN,
            check_results=not self._options.send,
        )

    def _poison_starts(self) -> dict[str, int]:
        poison = {
            item.keys[0]: 0
            for item in self._plan.items
            if item.kind.value.startswith("poison") and item.keys[0] in self._journal.confirmed
        }
        for mark in self._witnessed.marks:
            if mark.what == "start" and mark.key in poison:
                poison[mark.key] += 1
        return poison

    def _history(self, ledger: Ledger) -> dict[str, list[str]]:
        odd = {key for key, fate in ledger.fates.items() if fate in (Fate.LOST, Fate.PENDING)}
        odd |= set(ledger.strangers) | set(ledger.unanswered)
        odd |= {each.key for each in ledger.duplicates if each.cause == UNKNOWN}
        history: dict[str, list[str]] = {key: [] for key in sorted(odd)}
        for mark in self._witnessed.marks:
            if mark.key in history:
                history[mark.key].append(
                    f"{mark.at:.3f} {mark.what} attempt {mark.attempt} in {mark.pid} of {mark.worker}"
                )
        for letter in self._letters:
            if letter.key in history:
                history[letter.key].append(f"letter: {letter.reason}")
        return history

    def _note(self, hit: Hit) -> None:
        self._hits.append(hit)
        self._faults_file.write(f"{hit_as_line(hit)}\n")

    def _is_ready(self, pid: int) -> bool:
        return pid in self._witnessed.ready


def _open(
    published: list[Published], ended: set[str], letters: list[Letter], states: Mapping[str, str]
) -> list[str]:
    """Keys that may yet come to something: neither ended nor in a letter nor cancelled."""
    dead = {letter.key for letter in letters}
    waiting = []
    for each in published:
        if each.key in ended or each.key in dead or states.get(each.key) == REVOKED:
            continue
        if each.after and not all(key in ended and key not in dead for key in each.after):
            continue
        waiting.append(each.key)
    return waiting


def interruptible() -> None:
    """SIGTERM ends a run as Ctrl-C does: with all that it started."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
