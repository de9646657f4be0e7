"""What the counting of deaths relies on in Celery and billiard, beside the symbols' existence."""

from __future__ import annotations

import inspect
from typing import Any

import celery.worker.strategy
import pytest
from billiard import pool as billiard_pool
from billiard.common import human_status
from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery.concurrency.asynpool import AsynPool
from celery.worker import state
from celery.worker.request import Request

from hardening.poison.death import EX_RECYCLE, death_from, kind_of
from hardening.trace import error_of
from tests.helpers.hardened_apps import hardened_app, request_of, send

pytestmark = pytest.mark.usefixtures("isolated", "recording")

asynpool: Any = AsynPool
billiards: Any = billiard_pool


def test_a_child_that_leaves_with_this_code_alarms_nobody() -> None:
    assert billiards.EX_RECYCLE == EX_RECYCLE
    source = inspect.getsource(billiards.Pool._join_exited_workers)
    assert "exitcode not in (EX_OK, EX_RECYCLE)" in source


def test_a_child_whose_task_exits_says_so_before_it_leaves() -> None:
    source = inspect.getsource(billiards.Worker.workloop)

    assert source.index("exit_exc = exc") < source.index("put((READY,") < source.index("raise exit_exc")


def test_a_job_that_no_child_accepted_goes_through_one_place_and_is_put_back_there() -> None:
    assert "self.on_partial_read(job, job._write_to)" in inspect.getsource(asynpool.on_job_process_down)
    source = inspect.getsource(asynpool.on_partial_read)
    assert "if not job._accepted:" in source
    assert "self._put_back(job)" in source


def test_what_waits_for_a_child_is_known_and_may_be_taken_for_written_to_another() -> None:
    assert "outbound = self.outbound_buffer" in inspect.getsource(asynpool._create_write_handlers)
    assert "job._write_to = proc" in inspect.getsource(asynpool._create_process_handlers)


def test_a_job_that_is_accepted_and_lost_is_told_and_forgotten() -> None:
    told: list[Any] = []
    cache: dict[Any, Any] = {}
    job: Any = billiards.ApplyResult(cache, None, error_callback=told.append)
    job._ack(None, 0.0, 42, None)
    billiards.Pool.mark_as_worker_lost(None, job, -9)

    assert cache == {}
    assert isinstance(error_of(told[0]), WorkerLostError)
    assert human_status(-9) in str(error_of(told[0]))


@pytest.mark.parametrize(("status", "kind"), [(-9, "SIGKILL"), (-11, "SIGSEGV"), (70, "exit code 70")])
def test_what_billiard_says_of_a_lost_child_can_be_read(status, kind) -> None:
    app = hardened_app()

    @app.task(shared=False)  # type: ignore[untyped-decorator]
    def work() -> None: ...

    request = request_of(app, send(work))
    told: list[ExceptionInfo] = []
    job: Any = billiards.ApplyResult({}, None, error_callback=told.append)
    job._ack(None, 0.0, 42, None)
    billiards.Pool.mark_as_worker_lost(None, job, status)
    death = death_from(error_of(told[0]), request, lambda pid: (0, False))

    assert death is not None
    assert kind_of(death) == kind


def test_a_request_knows_when_its_end_was_asked_for_and_a_worker_when_it_ends_cold() -> None:
    flags: Any = Request
    assert (flags._already_cancelled, flags._already_revoked) == (False, False)
    assert not state.should_terminate


def test_celerys_strategy_reads_old_messages_with_the_same_functions() -> None:
    strategy: Any = celery.worker.strategy
    source = inspect.getsource(strategy.default)

    assert "hybrid_to_proto2(message," in source
    assert "proto1_to_proto2(message, body)" in source


def test_a_request_is_asked_before_its_start_and_then_it_is_reserved() -> None:
    source = inspect.getsource(Request.execute_using_pool)

    assert source.index("self.revoked()") < source.index("apply_async(")
    strategy: Any = celery.worker.strategy
    text = inspect.getsource(strategy.default)
    assert text.index("req.revoked()") < text.index("task_reserved(req)") < text.index("handle(req)")
