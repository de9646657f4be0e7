"""A worker whose configuration contradicts the promise does not start, and says why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hardening.testing.containers import ProcessWorker
from tests.helpers.wait import wait_until

from .stage import Stage

EX_CONFIG = 78
OPT_OUT = "tests.system.project.opting_out"


@pytest.fixture
def stage(new_stage: Callable[..., Any]) -> Iterator[Stage]:
    with new_stage("redis") as opened:
        yield opened


def ended(worker: ProcessWorker) -> tuple[int, str]:
    """Exit code and log of a worker that ends by itself."""
    return worker.process.wait(timeout=30), worker.logs()


def test_a_contradicting_setting_stops_the_worker_with_both_values_and_the_remedy(stage: Stage) -> None:
    celery = json.dumps({"CELERY_TASK_ACKS_LATE": False, "CELERY_ACCEPT_CONTENT": ["json", "yaml"]})

    code, log = ended(stage.worker(wait=False, TEST_CELERY=celery))

    assert code == EX_CONFIG
    assert "task_acks_late is False, enforced is True" in log
    assert "accept_content is ['json', 'yaml'], enforced is ['json']" in log
    assert "remedy: Remove the setting, or set it to True." in log
    check = stage.manage("check", check=False, TEST_CELERY=celery)
    assert check.returncode == 1
    assert "task_acks_late is False, enforced is True" in check.stderr


def test_an_early_acknowledged_task_without_a_reason_stops_the_worker_and_is_named_with_its_file(
    stage: Stage,
) -> None:
    celery = json.dumps({"CELERY_IMPORTS": [OPT_OUT]})

    code, log = ended(stage.worker(wait=False, TEST_CELERY=celery))

    assert code == EX_CONFIG
    assert "task opting_out.silent has acks_late=False without a reason" in log
    assert "opting_out.py:" in log
    assert "task opting_out.reasoned has acks_late" not in log


def test_an_opt_out_with_a_reason_in_the_settings_is_accepted_and_shown(stage: Stage) -> None:
    env: dict[str, Any] = {
        "TEST_CELERY": json.dumps({"CELERY_IMPORTS": [OPT_OUT]}),
        "TEST_HARDENING": json.dumps({"EARLY_ACK": {"opting_out.sil*": "a lost ping is harmless"}}),
    }
    stage.worker(**env)
    result = stage.send("opting_out.silent")
    stage.state_of(result, "SUCCESS")

    status = json.loads(stage.manage("hardening_status", "--json", **env).stdout)
    tasks = {task["name"]: task for task in status["tasks"]}
    assert tasks["opting_out.silent"]["opt_out"] == "a lost ping is harmless"
    assert tasks["opting_out.silent"]["acks_late"] is False
    assert tasks["opting_out.reasoned"]["opt_out"] == "written on the task itself"
    assert tasks["shared"]["acks_late"] is True
    assert status["findings"] == [f for f in status["findings"] if f["level"] != "error"]


def test_an_opt_out_in_the_settings_without_a_reason_is_refused(stage: Stage) -> None:
    code, log = ended(stage.worker(wait=False, TEST_HARDENING=json.dumps({"EARLY_ACK": {"shared": " "}})))

    assert code == EX_CONFIG
    assert "the opt-out for tasks 'shared' gives no reason" in log


def test_a_misspelt_key_is_refused_with_the_right_one(stage: Stage) -> None:
    code, log = ended(stage.worker(wait=False, TEST_HARDENING=json.dumps({"MODEE": "report"})))

    assert code == EX_CONFIG
    assert 'Did you mean "MODE"?' in log


def test_a_prefetch_on_the_command_line_is_refused(stage: Stage) -> None:
    code, log = ended(stage.worker(wait=False, extra_args=("--prefetch-multiplier", "4")))

    assert code == EX_CONFIG
    assert "worker_prefetch_multiplier is 4, enforced is 1 on prefork" in log


def test_report_mode_changes_nothing_stops_nothing_and_says_what_it_would_do(stage: Stage) -> None:
    env: dict[str, Any] = {
        "TEST_CELERY": json.dumps({"CELERY_TASK_ACKS_LATE": False, "CELERY_IMPORTS": [OPT_OUT]}),
        "TEST_HARDENING": json.dumps({"MODE": "report"}),
    }
    worker = stage.worker(**env)
    log = worker.logs()
    assert "task_acks_late is False, enforced is True" in log
    assert "would have stopped this worker" in log

    result = stage.send("fail_for_good")
    # Plain Celery: the broad autoretry retries even Permanent, and no letter is kept.
    marker = stage.send("bug", 1)
    stage.state_of(marker, "FAILURE")
    assert stage.letters() == []
    wait_until(lambda: stage.unacked() == 0 or result.state == "RETRY", 20, stage.logs)
    status = json.loads(stage.manage("hardening_status", "--json", **env).stdout)
    assert status["mode"] == "report"
    settings = {row["name"]: row["value"] for row in status["settings"]}
    assert settings["task_acks_late"] is False
    assert settings["worker_prefetch_multiplier"] == 4
    assert {task["acks_late"] for task in status["tasks"] if not task["name"].startswith("celery.")} == {
        False
    }


def test_without_dlq_letters_wait_on_the_broker_and_the_worker_warns(stage: Stage) -> None:
    import redis

    worker = stage.worker(TEST_WITHOUT_APPS="dlq")
    assert "dead letters stay on the broker" in worker.logs()
    result = stage.send("fail_for_good")
    stage.state_of(result, "FAILURE")

    with redis.Redis.from_url(stage.broker_url) as client:
        assert client.llen("celery_hardening.dead_letters") == 1
