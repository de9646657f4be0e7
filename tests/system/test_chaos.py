"""The chaos kit in small: the ledger balances on each broker, and the kit stays away from others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hardening.chaos.stage import OWN_APP
from hardening.testing.servers import LocalServer, RabbitMQServer, RedisServer, ServerMissing
from tests.conftest import absent

ROOT = Path(__file__).parents[2]
LINE = re.compile(
    r"ledger: published=60 succeeded=\d+ dead=\d+ cancelled=\d+ pending=0 lost=0 duplicates=\d+ seed=7"
)


def chaos(*options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hardening.chaos", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


def needs(servers: type[LocalServer]) -> None:
    """The kit starts servers of its own; made here, they say whether this machine has them."""
    try:
        servers()
    except ServerMissing as missing:
        absent(str(missing))


@pytest.mark.parametrize(("broker", "servers"), [("redis", RedisServer), ("rabbitmq", RabbitMQServer)])
def test_the_ledger_of_a_seed_balances(broker: str, servers: type[LocalServer], tmp_path: Path) -> None:
    needs(servers)
    done = chaos(
        *("--seed", "7", "--broker", broker, "--tasks", "60", "--workers", "2", "--concurrency", "2"),
        *("--database", "sqlite", "--without", "long,stop,deploy,broker,poison_worker", "--lease", "3"),
        *("--faults", "kill_child=2,kill_worker=1,cut=1", "--keep", str(tmp_path / "run")),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert LINE.fullmatch(done.stdout.splitlines()[-1]), done.stdout
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["kills"] == 3


def test_a_project_that_insists_on_its_own_broker_is_refused(tmp_path: Path) -> None:
    needs(RedisServer)
    (tmp_path / "stubborn.py").write_text(
        "import os\n"
        "for name in ('CELERY_BROKER_URL', 'CELERY_BROKER_READ_URL', 'CELERY_BROKER_WRITE_URL'):\n"
        "    os.environ[name] = 'redis://127.0.0.1:1/0'\n"
        f"from {OWN_APP} import app\n"
    )

    done = chaos(
        *("--app", "stubborn:app", "--settings", "hardening.chaos.project.settings"),
        *("--tasks", "5", "--database", "sqlite"),
        PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}",
    )

    assert done.returncode == 2
    assert "nothing was sent" in done.stderr
    assert "127.0.0.1:1, not to" in done.stderr
    assert "ledger:" not in done.stdout
