"""ManagedProcess: what is awaited comes or fails soon, and nothing stays behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from hardening.testing.errors import ProcessEnded, ProcessError, ProcessTimeout
from hardening.testing.processes import ManagedProcess
from tests.helpers.wait import wait_until

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEPER
PARENT = (
    "import subprocess, sys, time;"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "print('child', child.pid, flush=True); time.sleep(60)"
)


def python(code: str, tmp_path: Path, **options) -> ManagedProcess:
    return ManagedProcess([sys.executable, "-c", code], log_path=tmp_path / "log", **options)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_output_can_be_awaited(tmp_path):
    with python(
        "print('one'); print('port 42', flush=True); import time; time.sleep(60)", tmp_path
    ) as process:
        match = process.wait_for_log(re.compile(r"port (\d+)"))
    assert match[1] == "42"
    assert process.log_text().splitlines() == ["one", "port 42"]


def test_awaiting_a_line_fails_at_once_when_the_process_ends(tmp_path):
    process = python("print('last words'); raise SystemExit(3)", tmp_path).start()
    with pytest.raises(ProcessEnded, match=r"ended \(3\)(.|\n)*last words"):
        process.wait_for_log("never said", timeout=30)


def test_last_words_count(tmp_path):
    process = python("print('last words')", tmp_path).start()
    process.wait()
    assert process.wait_for_log("last words")[0] == "last words"


def test_awaiting_a_line_times_out(tmp_path):
    with python(SLEEPER, tmp_path) as process, pytest.raises(ProcessTimeout):
        process.wait_for_log("never said", timeout=0.1)


def test_a_line_of_an_earlier_run_does_not_count(tmp_path):
    process = python(SLEEPER, tmp_path).start()
    process.wait_for_log("up")
    process.stop()
    with process.start():
        process.wait_for_log("up")
        assert process.log_text().count("up") == 1
        assert process.log_text(since=0).count("up") == 2


def test_kill_ends_the_children_too(tmp_path):
    with python(PARENT, tmp_path) as process:
        child = int(process.wait_for_log(re.compile(r"child (\d+)"))[1])
        process.kill("SIGKILL")
        assert process.returncode == -signal.SIGKILL
        wait_until(lambda: is_gone(child), message="the child outlived its parent's kill")


def test_children_do_not_outlive_a_parent_that_ends_by_itself(tmp_path):
    with python(PARENT, tmp_path) as process:
        child = int(process.wait_for_log(re.compile(r"child (\d+)"))[1])
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until(lambda: is_gone(child), message="the child outlived its parent")


def test_stop_is_graceful_at_first(tmp_path):
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7));" + SLEEPER
    process = python(code, tmp_path).start()
    process.wait_for_log("up")
    assert process.stop() == 7


def test_stop_does_not_wait_for_ever(tmp_path):
    process = python(STUBBORN, tmp_path, stop_timeout_seconds=0.2).start()
    process.wait_for_log("up")
    assert process.stop() == -signal.SIGKILL


def test_stop_ends_a_paused_process_gracefully(tmp_path):
    process = python(SLEEPER, tmp_path).start()
    process.wait_for_log("up")
    process.pause()
    assert process.stop() == -signal.SIGTERM


def test_stop_may_be_called_twice_and_before_start(tmp_path):
    process = python(SLEEPER, tmp_path)
    process.stop()
    process.start()
    assert process.stop() == process.stop()


def test_a_running_process_is_not_started_twice(tmp_path):
    with python(SLEEPER, tmp_path) as process, pytest.raises(ProcessError, match="running already"):
        process.start()


def test_the_environment_is_exactly_the_given_one(tmp_path):
    process = python(
        "import os; print(sorted(set(os.environ) - {'LC_CTYPE'}))", tmp_path, env={"ONLY": "this"}
    )
    process.start().wait()
    assert process.log_text().strip() == "['ONLY']"


def test_a_process_started_from_a_short_lived_thread_lives_on(tmp_path):
    process = python(SLEEPER, tmp_path)
    starter = threading.Thread(target=process.start)
    starter.start()
    starter.join()
    with process:
        process.wait_for_log("up")
        assert process.is_running


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_killed_test_run_leaves_no_process_behind(tmp_path):
    run = f"""
import pathlib, sys, time
from hardening.testing.processes import ManagedProcess
log = pathlib.Path({str(tmp_path)!r}) / "log"
process = ManagedProcess([sys.executable, "-c", {SLEEPER!r}], log_path=log).start()
process.wait_for_log("up")
print(process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        pid = int(runner.stdout.readline())
        assert not is_gone(pid)
        runner.kill()
    wait_until(lambda: is_gone(pid), message="the process outlived the run that started it")
