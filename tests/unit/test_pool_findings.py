"""A worker whose pool cannot do what is asked of it says so, or does not start."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from hardening.core.findings import Level
from hardening.pool_findings import is_patched, pool_findings
from tests.helpers.hardened_apps import hardened_app

pytestmark = pytest.mark.usefixtures("isolated")


def found(pool: str, *, patched: bool = True, app: Any = None, **conf: Any) -> list[tuple[str, Level, str]]:
    findings = pool_findings(app or hardened_app(**conf), pool, patched=lambda _: patched)
    return [(each.code, each.level, each.what) for each in findings]


@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_ch027_a_green_pool_on_unpatched_sockets_is_refused(pool: str) -> None:
    ((code, level, what),) = found(pool, patched=False)

    assert (code, level) == ("CH027", Level.ERROR)
    assert what.startswith(f"the pool is {pool} and its sockets are not patched")


def test_ch027_is_absent_on_patched_sockets() -> None:
    assert found("gevent") == []


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_other_pools_need_no_patch(pool: str) -> None:
    assert is_patched(pool)


@pytest.mark.parametrize(
    ("arguments", "patched"),
    [(["-P", "gevent"], "True"), (["--pool=gevent"], "True"), (["-Pgevent"], "False"), ([], "False")],
)
def test_it_is_seen_whether_celery_patched(arguments: list[str], patched: str) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['celery', 'worker', *{arguments!r}]\n"
        "import celery\n"
        "celery.maybe_patch_concurrency()\n"
        "from hardening.pool_findings import is_patched\n"
        "print(is_patched('gevent'))\n"
    )

    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert said.stdout.strip() == patched


@pytest.mark.parametrize(
    ("pool", "limits"),
    [
        ("prefork", None),
        ("gevent", "task_soft_time_limit"),
        ("threads", "task_time_limit, task_soft_time_limit"),
        ("thread", "task_time_limit, task_soft_time_limit"),
        ("solo", "task_time_limit, task_soft_time_limit"),
    ],
)
def test_ch028_limits_that_a_pool_does_not_keep(pool: str, limits: str | None) -> None:
    findings = found(pool, task_time_limit=9, task_soft_time_limit=8)

    assert [(code, level) for code, level, _ in findings] == ([("CH028", Level.WARNING)] if limits else [])
    assert limits is None or findings[0][2].endswith(f": {limits}")


def test_ch028_names_the_tasks_whose_own_limit_it_is() -> None:
    app = hardened_app()

    @app.task(name="slow", soft_time_limit=3, shared=False)
    def slow(): ...

    assert found("gevent", app=app)[0][2].endswith(": slow.soft_time_limit")
    assert found("prefork", app=app) == []
