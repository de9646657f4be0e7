"""The kit that kills replayers, in small; `make chaos-replay` runs 500 kills."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from hardening.testing.servers import LocalServer, PostgresServer, RedisServer, ServerMissing
from tests.conftest import absent

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"replay: operations=\d+ kills=15 lost=0 doubled=0 seed=11")


def needs(*servers: type[LocalServer]) -> None:
    """The kit starts servers of its own; made here, they say whether this machine has them."""
    for each in servers:
        try:
            each()
        except ServerMissing as missing:
            absent(str(missing))


def test_nothing_is_lost_and_nothing_doubled_by_replayers_that_are_killed() -> None:
    needs(PostgresServer, RedisServer)

    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.replays", "--kills", "15", "--seed", "11"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert LINE.fullmatch(done.stdout.splitlines()[-1])
