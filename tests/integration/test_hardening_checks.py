"""`manage.py check` and `manage.py hardening_status` say what the worker's gate would say."""

from __future__ import annotations

import json
import sys
from io import StringIO

import pytest
from celery import signals
from django.core.checks import Error, Info, Tags, Warning, run_checks
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError

from hardening.checks import check_hardening, messages_of
from hardening.core.apps import NoCeleryApp, celery_app
from hardening.core.findings import Finding, Level
from tests.helpers.hardened_apps import SINK, hardened_app, state

pytestmark = pytest.mark.usefixtures("isolated")


@pytest.fixture
def project(settings, monkeypatch):
    """Makes an app the project's, by HARDENING["APP"]; settings of hardening as keywords."""

    def make(hardening=None, **conf):
        settings.HARDENING = {**SINK, **(hardening or {}), "APP": f"{__name__}.project_app"}
        app = hardened_app("project", **{"task_time_limit": 30, **conf})

        @app.task(name="t", shared=False)
        def t(): ...

        monkeypatch.setattr(sys.modules[__name__], "project_app", app, raising=False)
        return app

    return make


def ours() -> list[str]:
    return [
        message.id or ""
        for message in run_checks(tags=["celery"])
        if (message.id or "").startswith("hardening.")
    ]


def test_a_safe_project_passes(project) -> None:
    project()

    assert ours() == []
    call_command("check", "--tag", "celery", stderr=StringIO())


def test_a_contradiction_fails_manage_py_check_with_the_remedy(project) -> None:
    project(task_acks_late=False)

    with pytest.raises(SystemCheckError) as failed:
        call_command("check", "--tag", "celery", stderr=StringIO())

    assert "task_acks_late is False, enforced is True" in str(failed.value)
    assert "(hardening.CH002)" in str(failed.value)
    assert "HINT: Remove the setting, or set it to True." in str(failed.value)


def test_report_mode_stops_no_command_of_the_project(project) -> None:
    project({"MODE": "report"}, task_acks_late=False)

    call_command("check", tag=["celery"])

    assert {message.id: type(message) for message in check_hardening()}["hardening.CH002"] is Warning


def test_a_check_can_be_silenced_by_its_id(project, settings) -> None:
    project(task_acks_late=False)
    settings.SILENCED_SYSTEM_CHECKS = ["hardening.CH002"]

    call_command("check", "--tag", "celery", stderr=StringIO())


def test_checks_that_run_again_while_the_tasks_are_imported_do_not_run_in_circles(project) -> None:
    app = project(task_acks_late=False)
    inner: list[object] = []

    def again(**_):
        inner.append(check_hardening())

    signals.import_modules.connect(again, sender=app, weak=False, dispatch_uid="again")
    try:
        outer = check_hardening()
    finally:
        signals.import_modules.disconnect(sender=app, dispatch_uid="again")

    assert inner == [[]]
    assert [message.id for message in outer] == ["hardening.CH002"]
    assert [message.id for message in check_hardening()] == ["hardening.CH002"]


def test_checks_that_broke_once_run_again(project) -> None:
    app = project(task_acks_late=False)

    def broken(**_):
        raise SystemExit  # What a signal of Celery's does not swallow.

    signals.import_modules.connect(broken, sender=app, weak=False, dispatch_uid="broken")
    try:
        with pytest.raises(SystemExit):
            check_hardening()
    finally:
        signals.import_modules.disconnect(sender=app, dispatch_uid="broken")

    assert [message.id for message in check_hardening()] == ["hardening.CH002"]


def test_ch011_a_process_without_an_app_of_the_projects(monkeypatch, settings) -> None:
    settings.HARDENING = {}
    monkeypatch.setattr(state, "default_app", None)

    messages = [m for m in check_hardening() if (m.id or "").endswith("CH011")]

    assert [type(message) for message in messages] == [Warning]
    assert "from .celery import app" in str(messages[0].hint)
    assert state.default_app is None, "the look must not create Celery's fall-back"


def test_ch011_is_absent_when_the_project_names_its_app(project) -> None:
    project()

    assert "hardening.CH011" not in ours()


@pytest.mark.parametrize(
    "path", ["no.such.module", "tests.settings.SECRET_KEY", f"{__name__}.missing", "nodots"]
)
def test_an_app_that_is_named_and_cannot_be_had_is_an_error_that_says_so(path, settings) -> None:
    settings.HARDENING = {"APP": path}

    with pytest.raises(NoCeleryApp, match='HARDENING\\["APP"\\] = '):
        celery_app()
    assert [message.id for message in check_hardening()] == ["hardening.CH011"]


def test_an_app_may_be_named_with_a_colon_as_for_celery(project, settings) -> None:
    app = project()
    settings.HARDENING = {"APP": f"{__name__}:project_app"}

    assert celery_app() is app


def test_findings_become_messages_of_their_level() -> None:
    findings = [
        Finding(code=f"X{level}", level=level, what="what", where="where", remedy="remedy") for level in Level
    ]

    messages = messages_of(findings, prefix="p")

    assert [type(message) for message in messages] == [Info, Warning, Error]
    assert [message.id for message in messages] == ["p.X10", "p.X20", "p.X30"]
    assert messages[0].msg == "what (where: where)"
    assert messages[0].hint == "remedy"
    assert Tags.admin


def status(*arguments: str) -> str:
    out = StringIO()
    call_command("hardening_status", *arguments, stdout=out)
    return out.getvalue()


def test_status_shows_settings_tasks_opt_outs_and_findings_as_text(project) -> None:
    app = project({"EARLY_ACK": {"ping": "a lost ping is harmless"}}, worker_prefetch_multiplier=4)

    @app.task(name="ping", shared=False)
    def ping(): ...

    text = status()

    assert "app project   mode enforce   broker memory" in text
    assert "dead letters go to tests.helpers.hardened_apps.RecordingSink" in text
    line = {row.split()[0]: " ".join(row.split()[1:]) for row in text.splitlines() if row.startswith("  ")}
    assert line["task_acks_late"] == "True set by hardening"
    assert line["worker_prefetch_multiplier"] == "4 set by project"
    assert line["result_accept_content"] == "None set by celery"
    assert line["t"].startswith("late ack limit 30 s")
    assert line["ping"].startswith("EARLY ACK")
    assert "    opted out: a lost ping is harmless" in text
    assert "Findings: 1" in text
    assert "ERROR CH002: worker_prefetch_multiplier is 4" in text


def test_status_as_json_is_one_object_with_everything(project) -> None:
    app = project({"EARLY_ACK": {"ping": "harmless"}}, broker_url="redis://127.0.0.1:1/0")

    @app.task(name="ping", time_limit=3, max_retries=1, shared=False)
    def ping(): ...

    shown = json.loads(status("--json"))

    assert set(shown) == {
        *(
            "app",
            "mode",
            "broker",
            "sink",
            "settings",
            "tasks",
            "project_rules",
            "traffic",
            "duplicates",
            "revoked",
            "grace_seconds",
            "lease",
            "findings",
        )
    }
    assert shown["broker"] == "redis"
    tasks = {task["name"]: task for task in shown["tasks"]}
    assert tasks["ping"] | {"source": "", "retries": {}} == {
        "name": "ping",
        "source": "",
        "retries": {},
        "acks_late": False,
        "reject_on_worker_lost": False,
        "time_limit": 3,
        "soft_time_limit": None,
        "max_retries": 1,
        "opt_out": "harmless",
    }
    assert tasks["t"]["opt_out"] == ""
    rows = {row["name"]: row for row in shown["settings"]}
    assert rows["broker_transport_options.unacked_restore_throttle"]["value"] == 1
    assert all(row["why"] for row in rows.values())
    assert shown["findings"] == []


def test_status_with_a_broken_sink_says_so_and_works(project, settings) -> None:
    project({"DEAD_LETTER_SINK": {"BACKEND": "no.such.Sink"}})

    shown = json.loads(status("--json"))

    assert shown["sink"].startswith("unusable: no.such.Sink")
    assert [finding["code"] for finding in shown["findings"]] == ["CH007"]


def test_status_without_an_app_is_an_error_with_the_remedy(settings) -> None:
    settings.HARDENING = {"APP": "no.such.app"}

    with pytest.raises(CommandError, match=r"no\.such\.app"):
        status()


def test_status_in_report_mode_shows_what_is_in_force(project) -> None:
    project({"MODE": "report"})

    shown = json.loads(status("--json"))

    assert shown["mode"] == "report"
    rows = {row["name"]: row for row in shown["settings"]}
    assert (rows["task_acks_late"]["value"], rows["task_acks_late"]["enforced"]) == (False, True)
    assert rows["task_acks_late"]["set_by"] == "celery"
