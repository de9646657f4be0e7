"""What is known of a death: from the pool's words, the kernel's counters, and samples of the living."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import WorkerLostError

from hardening.core.letter import Attempt
from hardening.poison.case import Case, Death, How, Suspicion
from hardening.poison.death import (
    EX_RECYCLE,
    ExitForMemory,
    OutOfMemory,
    attempts_of,
    death_from,
    described,
    kind_of,
)
from hardening.poison.memory import MemoryWatch


def death(exc: BaseException, memory: Any = lambda pid: (0, False)) -> Death:
    request = SimpleNamespace(worker_pid=4242, hostname="w1@host", time_start=time.time() - 2)
    found = death_from(exc, request, memory)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("exc", "kind", "told"),
    [
        (
            WorkerLostError("Worker exited prematurely: signal 9 (SIGKILL) Job: 3."),
            "SIGKILL",
            "killed by SIGKILL",
        ),
        (WorkerLostError("Worker exited prematurely: signal 11 (SIGSEGV) Job: 3."), "SIGSEGV", "SIGSEGV"),
        (WorkerLostError("Worker exited prematurely: signal 7 Job: 3."), "SIGBUS", "killed by SIGBUS"),
        (WorkerLostError("Worker exited prematurely: signal 99 Job: 3."), "signal 99", "signal 99"),
        (WorkerLostError("Worker exited prematurely: exitcode 70 Job: 3."), "exit code 70", "exit code 70"),
        (WorkerLostError("Worker exited prematurely: exitcode 3."), "exit code 3", "exit code 3"),
        (WorkerLostError("something else"), "something else", "something else"),
        (SystemExit(3), "exit code 3", "ended with exit code 3"),
        (SystemExit(), "exit code 0", "exit code 0"),
        (SystemExit("bye"), "exit code 1", "exit code 1"),
        (KeyboardInterrupt(), "KeyboardInterrupt", "KeyboardInterrupt"),
        (MemoryError(), "MemoryError", "no memory left"),
        (OutOfMemory("numpy.MemoryError: 8 GB"), "MemoryError", "8 GB"),
        (ExitForMemory(EX_RECYCLE, "MemoryError: 8 GB"), "MemoryError", "8 GB"),
    ],
)
def test_every_death_is_told_from_what_the_pool_says(exc, kind, told) -> None:
    found = death(exc)

    assert kind_of(found) == kind
    assert told in described(found)
    assert "process 4242 of worker w1@host" in described(found)
    assert 1.5 < (found.ran or 0) < 60


@pytest.mark.parametrize("exc", [ValueError("no"), None, Exception("signal 9")])
def test_any_other_error_is_no_death(exc) -> None:
    assert (
        death_from(
            exc, SimpleNamespace(worker_pid=4242, hostname="w1@host", time_start=1.0), lambda pid: (0, False)
        )
        is None
    )


def test_memory_is_evidence_and_stands_in_the_letter() -> None:
    found = death(WorkerLostError("signal 9 (SIGKILL)"), lambda pid: (300 * 1024 * 1024, True))

    assert "its memory peaked at 300 MB" in described(found)
    assert "the kernel had ended a process of its control group for memory" in described(found)


def test_what_a_child_leaves_with_can_be_pickled_and_ends_it_in_good_order() -> None:
    exit_ = pickle.loads(pickle.dumps(ExitForMemory(EX_RECYCLE, "MemoryError: full")))

    assert (exit_.args[0], exit_.code, exit_.text) == (EX_RECYCLE, EX_RECYCLE, "MemoryError: full")


def test_each_death_is_an_attempt_after_the_earlier_ones_and_the_unseen_one_too() -> None:
    earlier = [Attempt(number=1, error_class="ValueError", message="no")]
    case = Case(
        deaths=(
            Death(id="1", at=1000.0, how=How.KILLED, signal="SIGKILL", ran=10.0),
            Death(id="2", at=2000.0, worker="w1@host", host="host", ran=5.0),
        ),
        suspected=Suspicion(at=500.0, holder="w0@host"),
    )

    attempts = attempts_of(case, earlier)

    assert [(each.number, each.error_class) for each in attempts] == [
        (1, "ValueError"),
        (2, "worker gone"),
        (3, "SIGKILL"),
        (4, "worker gone"),
    ]
    assert "w0@host" in attempts[1].message
    assert attempts[2].started_at is not None
    assert attempts[2].failed_at is not None
    assert (attempts[2].failed_at - attempts[2].started_at).total_seconds() == 10
    assert "w1@host on host was gone" in attempts[3].message


@pytest.fixture
def kernel(tmp_path: Path) -> Any:
    """A /proc and a /sys/fs/cgroup that a test writes."""
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"

    def write(pid: int, *, peak_kb: int) -> None:
        (proc / str(pid)).mkdir(parents=True, exist_ok=True)
        (proc / str(pid) / "status").write_text(f"Name:\tpython\nVmHWM:\t  {peak_kb} kB\nVmRSS:\t 1 kB\n")

    return SimpleNamespace(proc=proc, cgroups=cgroups, write=write)


def group(kernel: Any, line: str, counter: str, kills: int) -> None:
    own = kernel.proc / str(os.getpid())
    own.mkdir(parents=True, exist_ok=True)
    (own / "cgroup").write_text(line)
    path = kernel.cgroups / counter
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"low 0\noom_kill {kills}\nunder_oom 0\n")


@pytest.mark.parametrize(
    ("line", "counter"),
    [
        ("0::/worker.service\n", "worker.service/memory.events"),
        ("0::/somewhere/else\n", "memory.events"),
        ("5:cpu:/x\n4:memory:/docker/abc\n", "memory/docker/abc/memory.oom_control"),
        ("4:memory:/docker/abc\n0::/\n", "memory/memory.oom_control"),
    ],
)
def test_the_kernels_counter_is_found_in_each_version_and_only_new_kills_count(kernel, line, counter) -> None:
    group(kernel, line, counter, 3)
    watch = MemoryWatch(kernel.proc, kernel.cgroups)
    assert watch.of_dead(1)[1] is False

    group(kernel, line, counter, 4)
    assert watch.of_dead(1)[1] is True
    assert watch.of_dead(1)[1] is False


def test_the_last_look_at_a_child_is_its_peak_and_the_others_are_forgotten(kernel) -> None:
    kernel.write(11, peak_kb=2048)
    kernel.write(12, peak_kb=4096)
    watch = MemoryWatch(kernel.proc, kernel.cgroups)
    watch.sample([11, 12, 13])
    assert watch.of_dead(11)[0] == 2048 * 1024
    watch.sample([11])
    assert watch.of_dead(12)[0] == 0


def test_where_nothing_is_known_nothing_is_said(tmp_path) -> None:
    watch = MemoryWatch(tmp_path / "none", tmp_path / "none")
    watch.sample([1])

    assert watch.of_dead(1) == (0, False)


def test_the_largest_child_that_was_ever_buried_is_known_exactly(kernel, monkeypatch) -> None:
    largest = [1000]
    monkeypatch.setattr("hardening.poison.memory._largest_buried", lambda: largest[0])
    kernel.write(11, peak_kb=1)
    watch = MemoryWatch(kernel.proc, kernel.cgroups)
    watch.sample([11, 12])
    assert watch.of_dead(12)[0] == 0, "it may have been any child before"

    largest[0] = 5000
    assert watch.of_dead(11)[0] == 5000
    assert watch.of_dead(12)[0] == 0
