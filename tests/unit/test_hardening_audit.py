"""The audit: each finding is there when its cause is, and absent when it is not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from celery import Celery, Task

import hardening.private
from hardening.audit import audit, audit_prefetch
from hardening.core.findings import Level
from hardening.effective import MISSING
from hardening.plugin import hardened
from tests.helpers.hardened_apps import SINK, hardened_app, no_hardening, plain_app

pytestmark = pytest.mark.usefixtures("isolated")


@pytest.fixture(autouse=True)
def _safe_sink(settings) -> None:
    settings.HARDENING = dict(SINK)


def quiet_app(**conf):
    """An app about which there is nothing to say."""
    app = hardened_app(**{"task_time_limit": 60, **conf})

    @app.task(name="t", shared=False)
    def t(): ...

    return app


def found(app, code):
    return [finding for finding in audit(app) if finding.code == code]


def test_a_safe_app_has_no_findings() -> None:
    assert audit(quiet_app()) == []


def test_every_finding_says_what_where_and_how_to_mend_it(settings) -> None:
    settings.HARDENING = {"MODEE": 1, "EARLY_ACK": {"x": ""}, "DEAD_LETTER_SINK": {"BACKEND": "no.such"}}
    app = hardened_app(task_acks_late=False)

    @app.task(name="t", acks_late=False, shared=False)
    def t(): ...

    findings = audit(app)

    assert {f.code for f in findings} >= {"CH001", "CH002", "CH003", "CH006", "CH007"}
    for finding in findings:
        assert finding.what
        assert finding.where
        assert finding.remedy.endswith((".", "}.", "?"))


@pytest.mark.parametrize("bad", [{"MODEE": "report"}, {"MODE": 3}, {"MODE": "strict"}, [], "report"])
def test_ch001_settings_that_cannot_be_read(bad, settings) -> None:
    app = quiet_app()
    settings.HARDENING = bad

    assert [f.level for f in found(app, "CH001")] == [Level.ERROR]

    settings.HARDENING = dict(SINK)
    assert found(app, "CH001") == []


def test_ch002_a_contradicting_setting_with_both_values() -> None:
    findings = found(quiet_app(task_acks_late=False, accept_content=["json", "pickle"]), "CH002")

    assert [f.what.partition(". ")[0] for f in findings] == [
        "task_acks_late is False, enforced is True",
        "accept_content is ['json', 'pickle'], enforced is ['json']",
    ]
    assert {f.level for f in findings} == {Level.ERROR}


def test_ch002_is_absent_for_a_setting_that_is_as_good_as_ours() -> None:
    app = quiet_app(task_acks_late=True, accept_content=["application/json"], result_backend_max_retries=20)

    assert found(app, "CH002") == []


@pytest.mark.parametrize(
    ("source", "namespace"),
    [
        ({"CELERY_TASK_ACKS_LATE": False}, "CELERY"),
        ({"CELERY_ACKS_LATE": False}, None),
        ({"task_acks_late": False}, None),
        ({"task_acks_late": False}, "CELERY"),
        ({"MY_TASK_ACKS_LATE": False}, "MY"),
    ],
)
def test_ch002_finds_a_setting_however_it_is_spelt(source, namespace) -> None:
    app = Celery("spelt", set_as_current=False)
    app.config_from_object(SimpleNamespace(**source), namespace=namespace)
    hardened(app)

    assert [f.what.partition(".")[0] for f in found(app, "CH002")] == [
        "task_acks_late is False, enforced is True"
    ]


@pytest.mark.parametrize("source", [{"CELERY_TASK_ACKS_LATE": True}, {"CELERY_TASK_ACK_LATE": False}])
def test_ch002_is_absent_for_a_name_that_celery_does_not_see_either(source) -> None:
    app = Celery("unseen", set_as_current=False)
    app.config_from_object(SimpleNamespace(**source), namespace="CELERY")
    hardened(app)

    assert found(app, "CH002") == []
    assert app.conf.task_acks_late is True


def test_ch002_finds_what_was_changed_after_hardening() -> None:
    app = quiet_app()
    assert found(app, "CH002") == []

    app.conf.update(task_reject_on_worker_lost=False)

    assert [f.what.partition(".")[0] for f in found(app, "CH002")] == [
        "task_reject_on_worker_lost is False, enforced is True"
    ]


def test_ch002_judges_nested_transport_options_by_the_broker() -> None:
    options = {"unacked_restore_throttle": 10, "confirm_publish": False}

    on_redis = found(quiet_app(broker_url="redis://h/0", broker_transport_options=options), "CH002")
    on_amqp = found(quiet_app(broker_url="amqp://h//", broker_transport_options=options), "CH002")
    elsewhere = found(quiet_app(broker_transport_options=options), "CH002")

    assert [f.what.split(" is ")[0] for f in on_redis] == [
        "broker_transport_options.unacked_restore_throttle"
    ]
    assert [f.what.split(" is ")[0] for f in on_amqp] == ["broker_transport_options.confirm_publish"]
    assert elsewhere == []


def test_ch002_options_that_were_written_over_later_are_missed() -> None:
    app = quiet_app(broker_url="redis://h/0")
    hardened(app)
    app.conf.update(broker_transport_options={"visibility_timeout": 100})

    assert {f.what.split(" is ")[0] for f in found(app, "CH002")} == {
        "broker_transport_options.unacked_restore_interval",
        "broker_transport_options.unacked_restore_throttle",
    }


def test_ch002_leaves_the_prefetch_that_is_right_on_gevent_to_the_worker() -> None:
    assert found(quiet_app(worker_prefetch_multiplier=2), "CH002") == []
    assert len(found(quiet_app(worker_prefetch_multiplier=3), "CH002")) == 1


def test_ch003_an_early_acknowledged_task_without_a_reason() -> None:
    app = quiet_app()

    @app.task(name="silent", acks_late=False, shared=False)
    def silent(): ...

    findings = found(app, "CH003")

    assert [f.what.partition(".")[0] for f in findings] == [
        "task silent has acks_late=False without a reason"
    ]
    assert "test_hardening_audit.py:" in findings[0].where
    assert 'early_ack="..."' in findings[0].remedy


def test_ch003_a_task_that_contradicts_in_another_way_cannot_opt_out() -> None:
    app = quiet_app()

    @app.task(name="pickles", serializer="pickle", shared=False)
    def pickles(): ...

    assert [f.remedy for f in found(app, "CH003")] == ["Remove serializer='pickle' from the task."]


def test_ch003_is_absent_with_a_reason(settings) -> None:
    settings.HARDENING = {**SINK, "EARLY_ACK": {"by_pattern": "harmless"}}
    app = quiet_app()

    @app.task(name="on_itself", acks_late=False, early_ack="harmless", shared=False)
    def on_itself(): ...

    @app.task(name="by_pattern", acks_late=False, shared=False)
    def by_pattern(): ...

    assert found(app, "CH003") == []


@pytest.mark.parametrize("how", ["on the instance", "on the class, after it was bound", "in __init__"])
def test_ch003_finds_what_is_in_force_however_it_came(how) -> None:
    app = quiet_app()

    class Sly(Task):
        name = "sly"

        def __init__(self) -> None:
            if how == "in __init__":
                self.acks_late = False

        def run(self) -> None: ...

    app.register_task(Sly())
    app.finalize()
    if how == "on the instance":
        app.tasks["sly"].acks_late = False
    elif how == "on the class, after it was bound":
        Sly.acks_late = False

    assert [f.what.partition(".")[0] for f in found(app, "CH003")] == [
        "task sly has acks_late=False without a reason"
    ]


def test_ch003_an_opt_out_in_the_settings_without_a_reason(settings) -> None:
    settings.HARDENING = {**SINK, "EARLY_ACK": {"t": " ", "u": 5}}

    assert len(found(quiet_app(), "CH003")) == 2


def test_ch004_a_version_that_we_have_not_read(monkeypatch) -> None:
    app = quiet_app()
    monkeypatch.setattr(hardening.private, "KNOWN_VERSIONS", {"celery": ((4, 0),), "kombu": ((5, 7),)})

    findings = found(app, "CH004")

    assert len(findings) == 1
    assert "(known: 4.0)" in findings[0].what
    assert findings[0].level == Level.ERROR


@pytest.mark.parametrize("gone", [("celery._state", "no_such"), ("celery.no_such_module", "x")])
def test_ch004_a_private_symbol_that_is_gone(gone, monkeypatch) -> None:
    app = quiet_app()
    monkeypatch.setattr(hardening.private, "PRIVATE_SYMBOLS", ((*gone, "a purpose"),))

    assert [f"{'.'.join(gone)} does not exist" in f.what for f in found(app, "CH004")] == [True]


def test_ch004_is_absent_on_the_versions_that_are_tested() -> None:
    assert found(quiet_app(), "CH004") == []


def test_ch005_a_task_that_enforcement_did_not_reach() -> None:
    app = quiet_app()
    app.finalize()
    assert found(app, "CH005") == []
    with no_hardening():
        stranger = plain_app()

        class Smuggled(Task):
            name = "t"

            def run(self) -> None: ...

        stranger.register_task(Smuggled())
    dict.__setitem__(app.tasks, "t", stranger._tasks["t"])

    findings = found(app, "CH005")

    assert [f.where for f in findings] == ["task t"]
    assert findings[0].level == Level.ERROR


def test_ch006_lists_the_tasks_without_a_time_limit() -> None:
    app = hardened_app()

    @app.task(name="endless", shared=False)
    def endless(): ...

    @app.task(name="another", shared=False)
    def another(): ...

    @app.task(name="hard", time_limit=5, shared=False)
    def hard(): ...

    @app.task(name="soft", soft_time_limit=5, shared=False)
    def soft(): ...

    findings = found(app, "CH006")

    assert [(f.level, f.what) for f in findings] == [
        (Level.WARNING, "2 task(s) have no time limit and may hang for ever: another, endless")
    ]


def test_ch006_is_absent_with_a_limit_for_all() -> None:
    assert found(quiet_app(task_time_limit=None, task_soft_time_limit=9), "CH006") == []


@pytest.mark.parametrize(
    "sink",
    [
        {"BACKEND": "no.such.Sink"},
        {"BACKEND": ""},
        {"BACKEND": "builtins.dict"},
        {"BACKEND": "tests.helpers.hardened_apps.RecordingSink", "OPTIONS": {"colour": "red"}},
    ],
)
def test_ch007_a_sink_that_cannot_be_used(sink, settings) -> None:
    app = quiet_app()
    assert found(app, "CH007") == []

    settings.HARDENING = {"DEAD_LETTER_SINK": sink}

    assert [f.level for f in found(app, "CH007")] == [Level.ERROR]


def test_ch008_letters_stay_on_the_broker_without_dlq(settings, monkeypatch) -> None:
    settings.HARDENING = {"DEAD_LETTER_QUEUE": "graveyard"}
    monkeypatch.setattr("hardening.core.sink._offered", [])

    findings = found(quiet_app(), "CH008")

    assert [(f.level, "'graveyard'" in f.what) for f in findings] == [(Level.WARNING, True)]


def test_ch008_is_absent_when_an_app_brings_a_sink_or_the_settings_name_one(settings, monkeypatch) -> None:
    assert found(quiet_app(), "CH008") == []
    settings.HARDENING = {}
    monkeypatch.setattr("hardening.core.sink._offered", ["tests.helpers.hardened_apps.RecordingSink"])
    assert found(quiet_app(), "CH008") == []


def test_report_mode_finds_what_the_project_wrote_and_nothing_that_we_did_not_do(settings) -> None:
    settings.HARDENING = {**SINK, "MODE": "report"}
    app = quiet_app(task_acks_late=False)

    @app.task(name="silent", acks_late=False, shared=False)
    def silent(): ...

    assert [f.code for f in audit(app)] == ["CH002", "CH003"]
    assert app.conf.task_reject_on_worker_lost is None


@pytest.mark.parametrize(
    ("project", "in_force", "green", "codes"),
    [
        (MISSING, 1, False, []),
        (1, 1, False, []),
        (2, 2, False, ["CH002"]),
        (4, 4, False, ["CH002"]),
        (MISSING, 4, False, ["CH002"]),
        (0, 0, False, ["CH002"]),
        (2, 2, True, []),
        (1, 1, True, ["CH009"]),
        (4, 4, True, ["CH002"]),
        (4, 1, False, []),
        (0, 0, True, ["CH002"]),
    ],
)
def test_the_prefetch_of_a_worker_is_judged_by_its_pool(project, in_force, green, codes) -> None:
    findings = audit_prefetch(
        project=project, in_force=in_force, green=green, pool="gevent" if green else "prefork"
    )

    assert [f.code for f in findings] == codes
    for finding in findings:
        assert finding.level == (Level.WARNING if finding.code == "CH009" else Level.ERROR)


def test_a_prefetch_from_the_command_line_is_called_that() -> None:
    by_option = audit_prefetch(project=MISSING, in_force=4, green=False, pool="prefork")
    by_setting = audit_prefetch(project=4, in_force=4, green=False, pool="prefork")

    assert by_option[0].where == "--prefetch-multiplier"
    assert by_setting[0].where == "worker_prefetch_multiplier"
