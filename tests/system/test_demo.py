"""The demo as its users run it: it accounts for every job, and leaves nothing behind, however it ends."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hardening.testing.processes import ManagedProcess
from sample_project.demo.jobs import CASES
from sample_project.demo.stage import WEB_PORT
from sample_project.receivers.http import RETRY_AFTER_SECONDS
from tests.helpers.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
JOBS = 40
DEMO = [sys.executable, "-m", "sample_project.demo", "--jobs", str(JOBS)]
RUN_SECONDS = 180
INTERRUPTED = 130
MARK = "STARTED_BY_THE_TEST_IN"

pytestmark = [
    pytest.mark.timeout(RUN_SECONDS + 60),
    pytest.mark.skipif(
        not Path("/proc/self/environ").exists(), reason="needs /proc to find what was left behind"
    ),
]


def environment(home: Path) -> dict[str, str]:
    """Nothing of the tests' own settings; and a mark on all that the demo starts."""
    ours = ("SHOP_", "CELERY_", "DJANGO_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return inherited | {"TMPDIR": str(home), MARK: str(home)}


def processes_of(home: Path) -> dict[int, str]:
    """The command lines of the living processes that carry this directory's mark, by process id."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={home}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # It has just ended.
            continue
    return found


def assert_nothing_is_left(home: Path) -> None:
    wait_until(lambda: not processes_of(home), 5, lambda: f"left: {processes_of(home)}")
    assert list(home.iterdir()) == []


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "tmp"
    home.mkdir()
    return home


@pytest.fixture
def demo(home: Path, tmp_path: Path) -> Iterator[ManagedProcess]:
    """The demo, started."""
    with ManagedProcess(
        DEMO, log_path=tmp_path / "demo.log", env=environment(home), cwd=ROOT, stop_timeout_seconds=30
    ) as process:
        yield process


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The demo, run once for all processes of this test run, and its directory for temporary files."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    home, kept = shared / "finished", shared / "finished.json"
    with (shared / "finished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            home.mkdir(exist_ok=True)
            kept.write_text(json.dumps(run_to_its_end(home)))
    return subprocess.CompletedProcess(DEMO, *json.loads(kept.read_text())), home


def run_to_its_end(home: Path) -> tuple[int, str, str]:
    """Exit status, output and errors of the demo."""
    done = subprocess.run(
        DEMO,
        env=environment(home),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def last_table(output: str) -> dict[str, list[str]]:
    """The rows of the second ledger by kind of job: published, succeeded, dead, and so on."""
    table = output.rpartition("\njob ")[2]
    rows = [line.partition("  ") for line in table.splitlines()]
    kinds = {case.kind for case in CASES}
    return {kind: cells.split() for kind, _, cells in rows if kind in kinds}


def test_every_job_is_accounted_for(finished):
    done, _ = finished

    assert done.returncode == 0, done.stdout + done.stderr
    line = re.fullmatch(
        r"ledger: published=(\d+) succeeded=(\d+) dead=(\d+) cancelled=(\d+) pending=0 lost=0",
        done.stdout.splitlines()[-1],
    )
    assert line is not None, done.stdout
    published, *fates = map(int, line.groups())
    assert published == JOBS == sum(fates)


def test_what_can_be_mended_succeeds_in_the_end_and_what_cannot_stays_a_dead_letter(finished):
    done, _ = finished

    rows = last_table(done.stdout)

    for case in CASES:
        published, succeeded, dead = rows[case.kind][:3]
        assert (succeeded, dead) == ((published, ".") if case.can_succeed else (".", published)), case.kind


# Job -> what its letters say decided, and why they ended.
SAID = {
    "webhook, 503": ("transient", "http.status 503", "retries_exhausted"),
    "webhook, 429": ("transient", "http.status 429", "retries_exhausted"),
    "webhook, 404": ("permanent", "http.status 404", "permanent"),
    "webhook, too slow": ("transient", "http.timeout", "retries_exhausted"),
    "webhook, dropped": ("transient", "http.connection", "retries_exhausted"),
    "receipt, 451": ("transient", "smtp.recipients 451", "retries_exhausted"),
    "receipt, 550": ("permanent", "smtp.recipients 550", "permanent"),
    "mistake, bug": ("permanent", "python.programming", "permanent"),
    "mistake, retries": ("transient", "raised", "retries_exhausted"),
    "mistake, unclassified": ("unknown", "none", "unclassified"),
}


def explained(output: str) -> dict[str, tuple[str, str, str, str]]:
    """Verdict, rule, reason and shortest wait of each kind of job, after the first run."""
    table = output.partition("Why, as the letters say:\n\n")[2].partition("\n\n")[0]
    rows = [re.split(" {2,}", line) for line in table.splitlines()[2:]]
    return {row[0]: (row[2], row[3], row[6], row[5]) for row in rows}


def test_each_dead_job_is_shown_with_the_verdict_and_the_rule_that_decided(finished):
    done, _ = finished

    found = {kind: said[:3] for kind, said in explained(done.stdout).items() if kind in SAID}

    assert found == SAID


@pytest.mark.parametrize("kind", ["webhook, 503", "webhook, 429"])
def test_no_retry_came_before_its_retry_after(finished, kind):
    done, _ = finished

    shortest = explained(done.stdout)[kind][3]

    assert float(shortest.removesuffix(" s")) >= RETRY_AFTER_SECONDS


def test_an_error_that_no_rule_knows_is_shown_with_the_settings_that_name_it(finished):
    done, _ = finished

    assert '"sample_project.mistakes.tasks.SupplierMumbled": "transient",' in done.stdout


def test_the_replay_is_an_operation_that_knows_the_outcome_of_each_letter(finished):
    done, _ = finished
    mended = [case.kind for case in CASES if case.can_succeed]
    first = done.stdout.partition("Why, as the letters say:")[0]
    dead = sum(
        int(cells[2]) for kind, cells in last_table(first).items() if kind in mended and cells[2] != "."
    )

    assert re.search(r"^operation \w{8}: closed, ramp 1, 2, 5", done.stdout, re.MULTILINE), done.stdout
    assert f"dry run   fits {dead}\n" in done.stdout
    assert f"outcomes  sent {dead}, succeeded {dead}, came back 0, " in done.stdout


def test_the_ledger_names_the_groups_and_those_that_were_mended_are_resolved(finished):
    done, _ = finished

    before, after = (
        {line.split("  ")[0]: line.split()[-2:] for line in part.partition("\n\n")[0].splitlines()[2:]}
        for part in done.stdout.split("group of letters")[1:]
    )

    assert before.keys() == after.keys()
    assert {state for _, state in before.values()} == {"open"}
    assert {(count == ".", state) for count, state in after.values()} == {(True, "resolved"), (False, "open")}


def test_the_job_whose_process_was_killed_is_run_again(finished):
    done, _ = finished

    recovered = last_table(done.stdout)["contact sheet, killed"][7]

    assert recovered == "1"


def test_the_leading_beat_is_killed_and_each_due_time_is_sent_and_run_once(finished):
    done, _ = finished

    line = re.fullmatch(
        r"beat: due=(\d+) sent=(\d+) doubled=0 missed=0 takeover=(\d+\.\d) s "
        r"\(killed leader epoch (\d+), epoch (\d+) took over\)",
        done.stdout.splitlines()[-2],
    )

    assert line is not None, done.stdout
    due, sent, _, killed, after = (float(each) for each in line.groups())
    assert due == sent > 0
    assert after > killed


def test_it_leaves_no_process_and_no_file(finished):
    _, home = finished

    assert_nothing_is_left(home)


@pytest.mark.parametrize(
    "moment", ["starting Redis", "creating the database", "starting two workers", "published", "settled"]
)
def test_ctrl_c_at_any_moment_leaves_no_process_and_no_file(demo, home, moment):
    demo.wait_for_log(moment, timeout=90)

    demo.send_signal(signal.SIGINT)

    assert demo.wait(timeout=60) == INTERRUPTED, demo.log_text()
    assert_nothing_is_left(home)


def test_a_supervisor_s_sigterm_ends_it_as_ctrl_c_does(demo, home):
    demo.wait_for_log("published", timeout=90)

    demo.send_signal(signal.SIGTERM)

    assert demo.wait(timeout=60) == INTERRUPTED, demo.log_text()
    assert_nothing_is_left(home)


def test_when_a_worker_dies_it_shows_the_end_of_that_worker_s_log_and_fails(demo, home):
    demo.wait_for_log("published", timeout=90)
    worker = next(pid for pid, command in processes_of(home).items() if "io@%h" in command)

    os.kill(worker, signal.SIGKILL)

    assert demo.wait(timeout=60) == 1, demo.log_text()
    assert "demo: worker-io has ended (-9)" in demo.log_text()
    assert "end of worker-io.log" in demo.log_text()
    assert "Traceback" not in demo.log_text().partition("demo: worker-io")[0]
    assert_nothing_is_left(home)


def test_a_taken_port_is_named_before_anything_is_started(home):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Someone else's program on the port is as good as ours.
        with suppress(OSError):
            taken.bind(("127.0.0.1", WEB_PORT))
            taken.listen()

        done = subprocess.run(
            [*DEMO, "--stay"],
            env=environment(home),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.returncode == 1
    assert f"port {WEB_PORT} is taken" in done.stderr
    assert_nothing_is_left(home)
