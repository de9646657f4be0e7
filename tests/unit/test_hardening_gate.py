"""The gate: a worker whose configuration contradicts the promise ends with 78 before it takes a message."""

from __future__ import annotations

import click
import pytest
from celery import signals
from celery.bin.base import CLIContext
from celery.bin.worker import worker as worker_command

from hardening.core.findings import Finding, Level
from hardening.gate import EX_CONFIG, on_worker_init, report
from tests.helpers.hardened_apps import SINK, hardened_app, state

POOLS = ("prefork", "threads", "solo", "gevent", "eventlet", "celery.concurrency.gevent:TaskPool")


@pytest.fixture(autouse=True)
def _only_our_receiver(isolated, settings, monkeypatch) -> None:
    """Celery's Django fix-up would put its receivers into this process for good."""
    settings.HARDENING = dict(SINK)
    ours = [entry for entry in signals.worker_init.receivers if entry[0][0] == "hardening.gate"]
    assert len(ours) == 1
    monkeypatch.setattr(signals.worker_init, "receivers", ours)
    monkeypatch.setattr(state, "_task_join_will_block", False)  # A worker's pool sets it.
    monkeypatch.setattr("hardening.pool_findings.is_patched", lambda pool: True)


def app_with(**conf):
    return hardened_app(**{"task_time_limit": 9, "worker_concurrency": 1, **conf})


class Bare:
    """What every worker has."""

    hostname = "w@host"
    consumer_cls = "celery.worker.consumer:Consumer"


def start(app, **options):
    """Set a real worker up, as far as the gate and a step beyond."""
    return app.WorkController(hostname="w@host", **{"pool": "solo", **options})


def command_line(app, *arguments):
    """The context in which `celery worker` runs with these arguments."""
    parent = click.Context(click.Command("celery"), obj=CLIContext(app, no_color=True, workdir=None))
    return worker_command.make_context("worker", list(arguments), parent=parent)


def test_the_exit_code_is_ex_config() -> None:
    assert EX_CONFIG == 78


def test_a_safe_worker_starts() -> None:
    assert start(app_with()).prefetch_multiplier == 1


def test_a_contradiction_ends_the_worker_before_it_has_a_pool(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        start(app_with(task_acks_late=False))

    assert ended.value.code == 78
    said = capsys.readouterr().err
    assert "ERROR CH002: task_acks_late is False, enforced is True" in said
    assert "    remedy: Remove the setting, or set it to True." in said
    assert "The worker does not start: 1 finding(s) contradict the delivery promise (exit 78)." in said


def test_a_warning_is_said_and_stops_nothing(capsys) -> None:
    app = app_with(task_time_limit=None)

    @app.task(name="endless", shared=False)
    def endless(): ...

    start(app)

    said = capsys.readouterr().err
    assert "WARNING CH006: 1 task(s) have no time limit and may hang for ever: endless" in said
    assert "does not start" not in said


def test_report_mode_says_it_and_starts(settings, capsys) -> None:
    settings.HARDENING = {**SINK, "MODE": "report"}

    worker = start(app_with(task_acks_late=False, worker_prefetch_multiplier=4))

    said = capsys.readouterr().err
    assert "task_acks_late is False, enforced is True" in said
    assert 'HARDENING["MODE"] is "report": 2 finding(s) above would have stopped this worker.' in said
    assert worker.prefetch_multiplier == 4


def test_an_audit_that_breaks_refuses_the_start(monkeypatch, capsys) -> None:
    def broken(app, **options):
        raise RuntimeError("a defect")

    monkeypatch.setattr("hardening.gate.audit", broken)

    with pytest.raises(SystemExit) as ended:
        start(app_with())

    assert ended.value.code == 78
    assert "ERROR CH010: the start-up audit failed: RuntimeError('a defect')" in capsys.readouterr().err


def test_ch010_is_absent_when_the_audit_runs(capsys) -> None:
    start(app_with(), pool="prefork")

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("pool", POOLS)
def test_a_pool_gets_the_prefetch_that_is_right_for_it(pool) -> None:
    class Worker(Bare):  # Not a whole worker: not every pool can be built here.
        app = app_with()
        pool_cls = pool
        prefetch_multiplier = 4

    worker = Worker()
    on_worker_init(worker)

    assert worker.prefetch_multiplier == (2 if "event" in pool else 1)


def test_the_pools_class_is_recognised_as_well_as_its_name() -> None:
    from celery.concurrency import gevent, prefork

    for pool, multiplier in ((prefork.TaskPool, 1), (gevent.TaskPool, 2)):

        class Worker(Bare):
            app = app_with()
            pool_cls = pool
            prefetch_multiplier = 4

        worker = Worker()
        on_worker_init(worker)
        assert worker.prefetch_multiplier == multiplier


@pytest.mark.parametrize(
    ("pool", "setting", "code"),
    [
        ("prefork", 1, None),
        ("prefork", 2, "CH002"),
        ("prefork", 4, "CH002"),
        ("threads", 2, "CH002"),
        ("solo", 8, "CH002"),
        ("gevent", 2, None),
        ("gevent", 1, "CH009"),
        ("gevent", 4, "CH002"),
    ],
)
def test_a_prefetch_in_the_settings_is_judged_by_the_pool(pool, setting, code, capsys) -> None:
    class Worker(Bare):
        app = app_with(worker_prefetch_multiplier=setting)
        pool_cls = pool
        prefetch_multiplier = setting

    if code == "CH002":
        with pytest.raises(SystemExit):
            on_worker_init(Worker())
    else:
        on_worker_init(Worker())

    said = capsys.readouterr().err
    # The audit alone refuses 4 and leaves 2 to the pool; never is one mistake said twice.
    assert said.count("worker_prefetch_multiplier is") == (1 if code == "CH002" else 0)
    assert ("CH009" in said) == (code == "CH009")
    assert Worker.prefetch_multiplier == setting


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ([], False),
        (["--prefetch-multiplier", "4"], True),
        (["--prefetch-multiplier", "1"], False),
    ],
)
def test_a_prefetch_on_the_command_line_is_judged_too(arguments, refused, capsys) -> None:
    app = app_with()
    context = command_line(app, "--pool", "solo", *arguments)

    with context:
        if refused:
            with pytest.raises(SystemExit):
                start(app, prefetch_multiplier=context.params["prefetch_multiplier"])
            assert "where:  --prefetch-multiplier" in capsys.readouterr().err
        else:
            worker = start(app, prefetch_multiplier=context.params["prefetch_multiplier"])
            assert worker.prefetch_multiplier == 1


def test_the_command_line_outweighs_a_setting_that_contradicts_less(capsys) -> None:
    app = app_with(worker_prefetch_multiplier=2)
    context = command_line(app, "--pool", "solo", "--prefetch-multiplier", "1")

    with context:
        assert start(app, prefetch_multiplier=context.params["prefetch_multiplier"]).prefetch_multiplier == 1


def test_report_does_nothing_without_findings(capsys) -> None:
    report([], reporting=False)

    assert capsys.readouterr().err == ""


def test_report_puts_errors_first(capsys) -> None:
    def finding(code, level):
        return Finding(code=code, level=level, what=code, where="here", remedy="mend it")

    with pytest.raises(SystemExit):
        report([finding("CH900", Level.WARNING), finding("CH901", Level.ERROR)], reporting=False)

    said = capsys.readouterr().err
    assert said.index("CH901") < said.index("CH900")
