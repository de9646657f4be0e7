"""The kit that kills leading Beats, in small; `make chaos-beat` makes 300 failovers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from hardening.testing.servers import LocalServer, PostgresServer, RedisServer, ServerMissing
from tests.conftest import absent

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"beat: failovers=([89]|1\d) double=0 missed=0 takeover_p99=\d\.\d\d seed=519")


def needs(*servers: type[LocalServer]) -> None:
    """The kit starts servers of its own; made here, they say whether this machine has them."""
    for each in servers:
        try:
            each()
        except ServerMissing as missing:
            absent(str(missing))


def test_no_due_time_is_missed_and_none_runs_twice_whatever_becomes_of_the_leader() -> None:
    needs(PostgresServer, RedisServer)

    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos.beats", "--failovers", "8", "--seed", "519"),
            *("--stage", "redis code", "--stage", "postgresql database"),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert LINE.fullmatch(done.stdout.splitlines()[-1]), done.stdout
