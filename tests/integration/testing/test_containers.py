"""pytest-celery's worker API drives a real worker process, without Docker."""

from __future__ import annotations

import pytest
from celery import Celery
from pytest_celery import CeleryTestWorker, CeleryWorkerCluster
from pytest_docker_tools.exceptions import ContainerFailed

from tests.helpers.wait import wait_until

APP = "tests.helpers.echo_app"
# Inherited, it would load Django into the plain worker, and with it the hardening of every app.
PLAIN = {"DJANGO_SETTINGS_MODULE": ""}


@pytest.fixture(params=["redis_url", "rabbitmq_url"])
def broker(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def send(broker):
    app = Celery(broker=broker, set_as_current=False)
    yield lambda name, *args: app.send_task(name, args)
    app.close()


@pytest.fixture
def worker(broker, start_worker):
    return start_worker(APP, broker_url=broker, env=PLAIN)


def test_it_is_pytest_celerys_own_worker(worker):
    assert isinstance(worker, CeleryTestWorker)
    assert worker.ready()
    assert worker.hostname().startswith("worker@")
    assert worker.hostname() in worker.logs()


def test_it_runs_tasks(worker, send):
    send("echo.say", "hello")
    worker.assert_log_exists("said hello", timeout=10)
    worker.assert_log_does_not_exist("said goodbye", timeout=0.2)


@pytest.mark.parametrize("broker", ["rabbitmq_url"], indirect=True)  # plain Celery on Redis takes an hour
def test_its_task_runs_again_after_sigkill_and_restart(worker, send):
    send("echo.hold", 0.5)
    worker.wait_for_log("holding", timeout=10)
    worker.kill("SIGKILL")
    assert worker.container.status == "exited"

    worker.restart()
    assert worker.container.status == "running"
    wait_until(lambda: worker.logs().count("holding") == 2, message=worker.logs)


def test_sigterm_lets_the_running_task_end(worker, send):
    send("echo.hold", 0.5)
    worker.wait_for_log("holding", timeout=10)
    worker.kill("SIGTERM")
    wait_until(lambda: worker.container.status == "exited", message=worker.logs)
    assert "echo.hold" in worker.logs()
    assert "succeeded" in worker.logs()


def test_ready_means_ready_again_after_a_restart(worker):
    worker.restart(force=True)
    assert worker.logs().count("ready.") == 2


def test_it_lists_the_workers_own_processes(worker):
    infos = worker.get_running_processes_info(["pid", "cmdline"])
    assert infos[0]["pid"] == worker.process.pid
    assert len(infos) == 2  # the main process and one child of the pool


def test_teardown_leaves_no_process(worker):
    worker.teardown()
    worker.teardown()
    assert worker.container.status == "exited"
    assert worker.get_running_processes_info() == []


def test_awaiting_a_log_that_never_comes_fails(worker):
    with pytest.raises(AssertionError, match="did not log -> never said"):
        worker.assert_log_exists("never said", timeout=0.1)


def test_several_workers_make_a_cluster(redis_url, start_worker):
    cluster = CeleryWorkerCluster(
        start_worker(APP, broker_url=redis_url, worker_name="one", env=PLAIN),
        start_worker(APP, broker_url=redis_url, worker_name="two", pool="gevent", concurrency=10, env=PLAIN),
    )
    assert cluster.ready()
    assert {worker.worker_name for worker in cluster} == {"one", "two"}


def test_a_worker_that_cannot_start_fails_at_once_with_its_log(start_worker):
    with pytest.raises(ContainerFailed, match="module no_such_app was not found"):
        start_worker("no_such_app", env=PLAIN)
