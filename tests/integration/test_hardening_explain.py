"""`manage.py hardening_explain` says what a worker would do, by which rule, and how to change it."""

from __future__ import annotations

import ast
import errno
import json
import smtplib
import sys
from io import StringIO

import pytest
import requests
from celery.exceptions import Ignore
from django.core.management import CommandError, call_command

from hardening import Permanent, RetryLater, Transient
from hardening.classification.current import project_classifier
from tests.helpers.hardened_apps import hardened_app

pytestmark = pytest.mark.usefixtures("isolated")


class Busy(Exception):
    """No rule knows it."""


class Conflict(requests.exceptions.HTTPError):
    """Derives from what a rule knows."""


class Stubborn(Exception):
    """Cannot be made without its argument."""

    def __new__(cls, needed):
        return super().__new__(cls, needed)


HERE = __name__


@pytest.fixture
def project(settings, monkeypatch):
    """Makes an app the project's; settings of hardening as keywords."""

    def make(**hardening):
        settings.HARDENING = {**hardening, "APP": f"{HERE}.project_app"}
        app = hardened_app("project", task_time_limit=30)
        monkeypatch.setattr(sys.modules[HERE], "project_app", app, raising=False)
        return app

    return make


def explain(*arguments: str) -> str:
    out = StringIO()
    call_command("hardening_explain", *arguments, stdout=out)
    return out.getvalue()


def data(*arguments: str) -> dict:
    found = json.loads(explain(*arguments, "--json"))
    assert isinstance(found, dict)
    return found


def test_a_status_is_judged_and_the_schedule_follows(project) -> None:
    project()

    text = explain("requests.exceptions.HTTPError", "--status", "503")

    assert "verdict     transient, another try can help" in text
    assert "rule        http.status: 408, 425, 429 and every 5xx but 501 and 505" in text
    assert "code        503: it decides" in text
    assert "Tried up to 10 times in all" in text
    assert "after attempt 1           1 s to 5 s" in text
    assert "from the first failure to the last attempt: 9 s to 42 m 35 s" in text
    assert "Then a dead letter, reason retries_exhausted" in text


def test_what_can_never_succeed_is_dead_lettered_at_once(project) -> None:
    project()

    assert "Dead-lettered at the first attempt, reason permanent" in explain(
        "requests.HTTPError", "--status", "404"
    )
    assert data("KeyError")["foreseen"] | {"span": 0} == {
        "delays": [],
        "span": 0,
        "reason": "permanent",
        "if_slow": None,
        "more": False,
        "attempts": 1,
    }
    assert data("billiard.exceptions.SoftTimeLimitExceeded")["foreseen"]["reason"] == "time_limit"


@pytest.mark.parametrize(
    ("path", "code", "rule", "verdict"),
    [
        ("smtplib.SMTPDataError", "451", "smtp.reply", "transient"),
        ("smtplib.SMTPAuthenticationError", "535", "smtp.reply", "permanent"),
        ("OSError", "ENOSPC", "python.os_error", "transient"),
        ("django.db.utils.OperationalError", "40P01", "django.connection", "transient"),
        ("django.db.OperationalError", "28P01", "django.connection", "transient"),
        ("botocore.exceptions.ClientError", "ThrottlingException", "aws.code", "transient"),
        ("botocore.exceptions.ClientError", "503", "aws.unavailable", "transient"),
        ("botocore.exceptions.ClientError", "403", "aws.refused", "permanent"),
        ("grpc.RpcError", "UNAVAILABLE", "grpc.status", "transient"),
        ("urllib.error.HTTPError", "429", "http.status", "transient"),
    ],
)
def test_a_code_of_any_kind_decides(project, path, code, rule, verdict) -> None:
    project()

    found = data(path, "--status", code)

    assert (found["verdict"], found["rule"], found["code_role"]) == (verdict, rule, "decides")


def test_what_is_explained_is_what_is_said_of_a_real_error(project) -> None:
    project()
    answered = requests.Response()
    answered.status_code = 503
    refused = requests.Response()
    refused.status_code = 404
    real = {
        ("requests.HTTPError", "503"): requests.HTTPError(response=answered),
        ("requests.HTTPError", "404"): requests.HTTPError(response=refused),
        ("requests.ConnectionError", None): requests.ConnectionError("refused"),
        ("OSError", "ENOSPC"): OSError(errno.ENOSPC, "full"),
        ("smtplib.SMTPDataError", "451"): smtplib.SMTPDataError(451, b"later"),
        ("KeyError", None): KeyError("k"),
        ("ValueError", None): ValueError("v"),
        (f"{HERE}.Busy", None): Busy(),
    }

    for (path, code), error in real.items():
        said = project_classifier().judge(error)
        found = data(path, *(["--status", code] if code else []))
        assert (found["verdict"], found["rule"]) == (said.kind, said.rule), path


def test_a_code_that_no_rule_asks_for_plays_no_role(project) -> None:
    project()

    assert "503: it plays no role" in explain("KeyError", "--status", "503")
    assert "999: the rules that read codes do not know it" in explain("OSError", "--status", "999")


def test_without_a_code_the_verdicts_of_typical_codes_are_listed(project) -> None:
    project()

    found = data("requests.HTTPError")
    text = explain("requests.HTTPError")

    assert "503" in found["by_code"]["transient"]
    assert "404" in found["by_code"]["permanent"]
    assert found["snippet"] == ""
    assert "manage.py hardening_explain requests.exceptions.HTTPError --status 400" in text


def test_the_codes_of_a_projects_rule_are_listed(project) -> None:
    project(CLASSIFY={f"{HERE}.Busy": {"codes": {409: "transient"}, "verdict": "permanent", "why": "So."}})

    found = data(f"{HERE}.Busy")

    assert (found["verdict"], found["rule"], found["why"]) == ("permanent", f"project: {HERE}.Busy", "So.")
    assert found["by_code"] == {"transient": ["409"]}


def test_an_error_that_no_rule_knows_comes_with_the_rule_to_write(project) -> None:
    project()

    text = explain(f"{HERE}.Busy")
    snippet = data(f"{HERE}.Busy")["snippet"]

    assert "Tried up to 3 times in all" in text
    assert "reason unclassified" in text
    assert snippet in text
    (statement,) = ast.parse(snippet).body
    assert isinstance(statement, ast.Assign)
    assert ast.literal_eval(statement.value) == {"CLASSIFY": {f"{HERE}.Busy": "transient"}}


def test_a_subclass_is_judged_by_its_bases_and_a_public_name_by_its_class(project) -> None:
    project()

    assert data(f"{HERE}.Conflict", "--status", "503")["rule"] == "http.status"
    assert data("requests.HTTPError")["error"] == "requests.exceptions.HTTPError"
    assert data("builtins.ValueError")["error"] == "ValueError"


def test_errors_raised_on_purpose(project) -> None:
    project(RETRY={"AUTOMATIC": False})

    assert data("hardening.Permanent")["foreseen"]["reason"] == "permanent"
    assert data("hardening.Transient")["foreseen"]["attempts"] == 10
    text = explain("hardening.RetryLater")
    assert "each wait is the one that the error asks for" in text
    assert "after attempt" not in text
    assert {each.__module__ for each in (Permanent, Transient, RetryLater)} == {"hardening.core.errors"}


def test_celerys_signals_are_no_failures(project) -> None:
    project()

    assert "no failure, no letter, no retry" in explain("celery.exceptions.Ignore")
    assert data("celery.exceptions.Retry")["foreseen"] is None
    assert "reason rejected" in explain("celery.exceptions.Reject")
    assert "comes back" in explain("MemoryError")
    assert Ignore.__module__ == "celery.exceptions"


def test_a_rule_that_looks_into_the_error_is_named(project) -> None:
    project()

    found = data("redis.exceptions.ConnectionError")

    assert found["rule"] == "redis.connection"
    assert [(each["rule"], each["verdict"]) for each in found["otherwise"]] == [
        ("redis.certificate", "permanent")
    ]
    assert "unless      redis.certificate may say permanent" in explain("redis.exceptions.ConnectionError")


def test_the_projects_policy_and_the_rules_own_are_in_the_schedule(project) -> None:
    project(
        RETRY={"DELAYS": "10 s, 20 s"},
        CLASSIFY={
            f"{HERE}.Busy": {"verdict": "transient", "retry": {"delays": "7 s"}, "dependency": "acme"},
            "ConnectionError": {"verdict": "transient", "retry_after": 60},
        },
    )

    assert data("TimeoutError")["foreseen"]["delays"] == [[10, 10], [20, 20]]
    busy = data(f"{HERE}.Busy")
    assert (busy["foreseen"]["delays"], busy["dependency"]) == ([[7, 7]], "acme")
    assert "While acme is known to be down, it waits without using an attempt." in explain(f"{HERE}.Busy")
    assert data("ConnectionError")["foreseen"]["delays"] == [[60, 66], [60, 66]]


def test_a_tasks_own_options_are_respected(project) -> None:
    app = project(EARLY_ACK={"ping": "a lost ping is harmless"})

    @app.task(name="charge", shared=False, retry_policy={"delays": "1 s, 2 s"}, dependency="stripe")
    def charge(): ...

    @app.task(name="wish", shared=False, autoretry_for=(Busy,), max_retries=4, retry_jitter=False)
    def wish(): ...

    @app.task(name="ping", shared=False)
    def ping(): ...

    @app.task(name="know", shared=False, classify={f"{HERE}.Busy": "permanent"})
    def know(): ...

    charged = data("ConnectionError", "--task", "charge")
    assert (charged["foreseen"]["delays"], charged["dependency"]) == ([[1, 1], [2, 2]], "stripe")
    assert data("KeyError", "--task", "charge")["dependency"] is None
    wished = data(f"{HERE}.Busy", "--task", "wish")
    assert (wished["asked"], wished["foreseen"]["attempts"]) == (True, 5)
    assert data("ValueError", "--task", "wish")["asked"] is False
    pinged = data("ConnectionError", "--task", "ping")
    assert (pinged["automatic"], pinged["foreseen"]["reason"]) == (False, "error")
    assert "ping, not retried on its own" in explain("ConnectionError", "--task", "ping")
    known = data(f"{HERE}.Busy", "--task", "know")
    assert (known["verdict"], known["rule"]) == ("permanent", f"task: {HERE}.Busy")


def test_errors_that_a_task_excludes_from_retries_or_expects_are_dead_at_once(project) -> None:
    app = project()

    @app.task(
        name="t", shared=False, autoretry_for=(Exception,), dont_autoretry_for=(Busy,), throws=(LookupError,)
    )
    def t(): ...

    assert data(f"{HERE}.Busy", "--task", "t")["foreseen"]["reason"] == "error"
    assert data("TimeoutError", "--task", "t")["foreseen"]["attempts"] == 10
    assert data("ValueError", "--task", "t")["asked"] is True


def test_a_tasks_classify_function_is_asked_about_an_error_that_carries_the_code(project) -> None:
    app = project()

    def classify(exc):
        return "transient" if exc.response.status_code == 409 else None

    @app.task(name="sync", shared=False, classify=classify)
    def sync(): ...

    found = data("requests.HTTPError", "--status", "409", "--task", "sync")
    assert (found["verdict"], found["rule"], found["code_role"]) == ("transient", "task: classify", "decides")
    assert data("requests.HTTPError", "--status", "404", "--task", "sync")["rule"] == "http.status"


def test_a_classify_function_that_needs_a_real_error_is_left_out_with_a_note(project, caplog) -> None:
    app = project()

    @app.task(name="sync", shared=False, classify=lambda exc: exc.reason.upper())
    def sync(): ...

    found = data("ConnectionError", "--task", "sync")

    assert found["rule"] == "python.connection"
    assert "'task: classify' needs a real error" in found["notes"][0]
    assert caplog.records == []


def test_an_unknown_task_is_an_error_that_knows_what_was_meant(project) -> None:
    app = project()

    @app.task(name="shop.tasks.charge", shared=False)
    def charge(): ...

    with pytest.raises(CommandError, match=r"Did you mean shop\.tasks\.charge\?"):
        explain("ValueError", "--task", "shop.task.charge")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("ValueErorr", "Did you mean ValueError?"),
        ("HTTPError", "Did you mean requests.exceptions.HTTPError, urllib.error.HTTPError?"),
        ("requests.exceptions.HTTPEror", r"Did you mean .*requests\.exceptions\.HTTPError"),
        ("os.path", "is a module, not an exception class"),
        ("os.path.join", "is a function, not an exception class"),
        ("collections.OrderedDict", "not an exception class"),
        ("no_such_package.Busy", "There is no module 'no_such_package' here"),
        ("", "is no dotted path"),
        ("a..b", "is no dotted path"),
    ],
)
def test_what_is_no_error_class_is_an_error_that_says_what_to_do(project, path, says) -> None:
    project()

    with pytest.raises(CommandError, match=says):
        explain(path)


def test_a_module_that_breaks_on_import_is_told_and_the_name_is_judged(
    project, tmp_path, monkeypatch
) -> None:
    (tmp_path / "broken_on_import.py").write_text("raise SystemExit('no licence')\n")
    (tmp_path / "needs_another.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    project(CLASSIFY={"broken_on_import.Busy": "transient"})

    found = data("broken_on_import.Busy")

    assert (found["verdict"], found["rule"]) == ("transient", "project: broken_on_import.Busy")
    assert found["notes"][0] == "broken_on_import cannot be imported: SystemExit: no licence"
    assert "it needs no_such_package, which is not installed" in data("needs_another.Busy")["notes"][0]


def test_a_class_that_is_not_here_is_judged_by_its_name_where_a_rule_names_it(project) -> None:
    project(CLASSIFY={"no_such_package.Busy": "transient"})

    found = data("no_such_package.Busy")

    assert found["verdict"] == "transient"
    assert "no_such_package is not installed here." in found["notes"]
    assert "rules about the classes that it derives from were not asked" in explain("no_such_package.Busy")


def test_a_class_that_cannot_be_made_is_judged_by_its_name(project) -> None:
    project(CLASSIFY={f"{HERE}.Stubborn": "transient"})

    assert data(f"{HERE}.Stubborn")["verdict"] == "transient"
    assert "A group is judged by its worst member." in explain("ExceptionGroup")


def test_a_nested_class_is_found_and_one_within_a_function_judged_by_its_name(project) -> None:
    project()

    assert data("django.contrib.auth.models.User.DoesNotExist")["rule"] == "django.object"
    assert "cannot be imported" in data("acme.make.<locals>.Busy")["notes"][0]


def test_report_mode_says_that_nothing_of_it_is_in_force(project) -> None:
    project(MODE="report")

    assert data("ValueError")["in_force"] is False
    assert "nothing of this is in force" in explain("ValueError")


def test_without_an_app_it_is_an_error_with_the_remedy(settings) -> None:
    settings.HARDENING = {"APP": "no.such.app"}

    with pytest.raises(CommandError, match=r"no\.such\.app"):
        explain("ValueError")
