"""A project's own rules hold as they are written; what cannot be used is a finding, and the rest holds."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from celery import Celery
from django.db import OperationalError

from hardening.classification.classifier import Classifier, RuleBook, class_name
from hardening.classification.project import project_rules, task_rules
from hardening.classification.rule import Rule
from hardening.classification.verdict import Kind, Verdict
from hardening.conf import load_settings
from hardening.core.findings import Finding, Level
from hardening.retries.policy import RetryPolicy

P, T, U = Kind.PERMANENT, Kind.TRANSIENT, Kind.UNKNOWN


class AcmeError(Exception):
    def __init__(self, code: Any = None) -> None:
        self.code = code


class Busy(AcmeError):
    pass


class State(enum.Enum):
    GONE = 1


HERE = __name__
ACME, BUSY = class_name(AcmeError), class_name(Busy)


def is_teapot(exc: BaseException) -> bool:
    return getattr(exc, "code", None) == 418


def tag_of(exc: BaseException) -> str:
    return f"acme-{getattr(exc, 'code', '')}"


def code_of(exc: BaseException) -> Any:
    return getattr(exc, "code", None)


def judged(raw: Any, exc: BaseException) -> Verdict:
    rules, findings = project_rules(raw)
    assert findings == []
    return Classifier((RuleBook(rules),)).judge(exc)


def only_finding(raw: Any) -> Finding:
    _rules, (finding,) = project_rules(raw)
    assert (finding.code, finding.level) == ("CH013", Level.ERROR)
    assert finding.remedy
    return finding


def test_a_word_is_a_rule_about_a_class_and_its_subclasses() -> None:
    assert judged({ACME: "transient"}, Busy()) == Verdict(kind=T, rule=f"project: {ACME}")
    assert judged({ACME: "unknown"}, Busy()).rule == f"project: {ACME}"
    assert judged({Busy: "permanent"}, Busy()).rule == f"project: {BUSY}"
    assert judged({"ConnectionError": Kind.PERMANENT}, ConnectionResetError()).kind is P


def test_a_mapping_may_say_more() -> None:
    said = judged(
        {
            BUSY: {
                "verdict": "transient",
                "name": "acme busy",
                "retry_after": 20,
                "dependency": "acme",
                "retry": {"base": "30 s"},
                "why": "They are busy at noon.",
            }
        },
        Busy(),
    )

    assert said == Verdict(
        kind=T, rule="acme busy", retry_after=20.0, dependency="acme", retry=RetryPolicy(base=30)
    )


def test_exact_leaves_subclasses_alone() -> None:
    raw = {ACME: {"verdict": "transient", "exact": True}}

    assert judged(raw, AcmeError()).kind is T
    assert judged(raw, Busy()).rule == "none"


@pytest.mark.parametrize("when", [is_teapot, f"{HERE}.is_teapot"])
def test_a_condition_is_a_function_or_its_path(when) -> None:
    raw = {ACME: [{"verdict": "permanent", "when": when}, "transient"]}

    assert judged(raw, AcmeError(418)) == Verdict(kind=P, rule=f"project: {ACME}")
    assert judged(raw, AcmeError(500)) == Verdict(kind=T, rule=f"project: {ACME} (2)")


@pytest.mark.parametrize(
    ("dependency", "tag"),
    [
        ("acme", "acme"),
        (tag_of, "acme-7"),
        (f"{HERE}.tag_of", "acme-7"),
        ("api.acme.invalid", "api.acme.invalid"),
    ],
)
def test_a_dependency_is_a_tag_or_a_function_or_its_path(dependency, tag) -> None:
    assert judged({ACME: {"verdict": "transient", "dependency": dependency}}, AcmeError(7)).dependency == tag


@pytest.mark.parametrize("read", [code_of, f"{HERE}.code_of", None])
@pytest.mark.parametrize("code", ["503", 503])
def test_codes_decide_and_what_they_do_not_know_is_left_to_the_verdict(read, code) -> None:
    raw = {ACME: {"codes": {code: "transient", "404": "permanent"}, "read": read}}

    assert judged(raw, AcmeError(503)) == Verdict(kind=T, rule=f"project: {ACME}", code="503")
    assert judged(raw, AcmeError("404")).kind is P
    assert judged(raw, AcmeError(500)).rule == "none"
    assert judged({ACME: {**raw[ACME], "verdict": "unknown"}}, AcmeError(500)).rule == f"project: {ACME}"


def test_without_a_reader_codes_are_those_of_the_system_the_database_the_web_or_the_error_itself() -> None:
    def kind(exc: BaseException, code: str) -> Kind:
        return judged({"Exception": {"codes": {code: "transient"}}}, exc).kind

    class Answer:
        status_code = 429

    class WebError(Exception):
        response = Answer()
        code = "slow_down"

    database = OperationalError("deadlock")
    database.__cause__ = OperationalError(1213, "Deadlock found")

    assert kind(ConnectionResetError(104, "reset"), "ECONNRESET") is T
    assert kind(database, "1213") is T
    assert kind(WebError(), "429") is T
    assert kind(WebError(), "slow_down") is T
    assert kind(AcmeError(State.GONE), "GONE") is T
    assert kind(AcmeError(object()), "503") is U


def test_rules_may_be_written_out() -> None:
    own = Rule(name="own", classes=(ACME,), verdict=T)

    assert judged([own], Busy()).rule == "own"
    assert judged((own,), Busy()).rule == "own"
    assert judged({"acme.Other": own}, Busy()).rule == "own"
    assert judged({BUSY: Rule(name="own", classes=(), verdict=P)}, Busy()).rule == "own"


@pytest.mark.parametrize(
    ("entry", "what", "remedy"),
    [
        ("transiet", "'transiet' is no verdict", 'Did you mean "transient"?'),
        ({"verdict": "Permanent"}, "'Permanent' is no verdict", 'Did you mean "permanent"?'),
        ({"verdict": "retry"}, "'retry' is no verdict", "Known are: permanent, transient, unknown"),
        ({"verdct": "transient"}, "unknown key 'verdct'", 'Did you mean "verdict"?'),
        ({"dependency": "acme"}, "neither verdict nor codes", '"verdict": "transient"'),
        (7, "a int", "mapping"),
        ({"codes": ["503"]}, "codes is a list", '{"503": "transient"}'),
        ({"codes": {"503": "later"}}, "'later' is no verdict", "Known are"),
        ({"verdict": "transient", "when": "no.such.module"}, "cannot be imported", "dotted path"),
        ({"verdict": "transient", "when": f"{HERE}.nothing"}, "cannot be imported", "dotted path"),
        ({"verdict": "transient", "when": 7}, "cannot be called", "function"),
        ({"verdict": "transient", "read": f"{HERE}.ACME"}, "cannot be called", "function"),
        ({"verdict": "transient", "dependency": f"{HERE}.nothing"}, "cannot be imported", "dotted path"),
        ({"verdict": "transient", "dependency": f"{HERE}.ACME"}, "dependency is", "tag"),
        ({"verdict": "transient", "dependency": 7}, "dependency is 7", "tag"),
        ({"verdict": "transient", "exact": "yes"}, "exact is 'yes'", "True or False"),
        ({"verdict": "transient", "name": 7}, "name is a int", "text"),
        ({"verdict": "transient", "retry_after": -1}, "retry_after is -1", "from 0"),
        ({"verdict": "transient", "retry": {"base": "5 parsecs"}}, "retry cannot be used", "base"),
        ({"verdict": "transient", "retry": 7}, "retry cannot be used", "base"),
    ],
)
def test_an_entry_that_cannot_be_used_is_a_finding_and_the_others_hold(entry, what, remedy) -> None:
    finding = only_finding({ACME: entry, "KeyError": "transient"})

    assert what in finding.what
    assert remedy in finding.remedy
    assert finding.where == f"settings.HARDENING[\"CLASSIFY\"]['{ACME}']"
    rules, _ = project_rules({ACME: [entry, "transient"], "KeyError": "transient"})
    assert [rule.verdict for rule in rules] == [T, T]


def test_of_several_entries_the_place_of_the_wrong_one_is_told() -> None:
    assert only_finding({ACME: ["transient", "no"]}).where.endswith(f"['{ACME}'][1]")
    assert only_finding([Rule(name="r", classes=()), "no"]).where.endswith("[1]")


@pytest.mark.parametrize(
    ("key", "remedy"),
    [("ConectionError", 'Did you mean "ConnectionError"?'), ("Busy", "acme.client.Busy")]
    + [(key, "dotted path") for key in (7, "", "acme..Busy", int)],
)
def test_a_key_must_name_a_class_of_errors(key, remedy) -> None:
    assert remedy in only_finding({key: "transient"}).remedy


@pytest.mark.parametrize("raw", ["transient", 7, {"KeyError"}])
def test_what_is_neither_a_mapping_nor_rules_is_a_finding(raw) -> None:
    assert "says nothing of errors" in only_finding(raw).what


def test_a_module_that_breaks_at_its_import_is_a_finding(tmp_path, monkeypatch) -> None:
    (tmp_path / "acme_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)

    for key in ("when", "read", "dependency"):
        finding = only_finding({ACME: {"verdict": "transient", key: "acme_broken.rule"}})
        assert "ZeroDivisionError" in finding.what


def test_findings_of_the_setting_are_those_of_all_settings(settings) -> None:
    settings.HARDENING = {"CLASSIFY": {ACME: "transiet"}}
    assert [finding.code for finding in load_settings()[1]] == ["CH013"]

    settings.HARDENING = {"CLASSIFY": 7}
    conf, (finding,) = load_settings()
    assert (conf.classify, finding.code) == ({}, "CH001")

    settings.HARDENING = {"CLASSIFY": [Rule(name="own", classes=(ACME,), verdict=T)]}
    assert load_settings()[1] == []


def test_settings_that_are_read_before_djangos_apps_import_nothing(settings, monkeypatch) -> None:
    from django.apps import apps

    settings.HARDENING = {"CLASSIFY": {ACME: {"verdict": "transient", "when": "no.such.module"}}}
    monkeypatch.setattr(apps, "models_ready", False)

    conf, findings = load_settings()

    assert findings == []
    assert ACME in conf.classify


def task(**options: Any) -> Any:
    app = Celery("rules", set_as_current=False)

    @app.task(name="ship", shared=False, **options)
    def ship() -> None:
        pass

    return app.tasks["ship"]


def judged_by_task(task: Any, exc: BaseException) -> Verdict:
    rules, findings = task_rules(task)
    assert findings == []
    return Classifier().judge(exc, own=RuleBook(rules))


def test_a_task_without_rules_has_none() -> None:
    assert task_rules(task()) == ((), [])


def test_a_task_has_rules_in_the_same_form() -> None:
    assert judged_by_task(task(classify={ACME: "transient"}), Busy()).rule == f"task: {ACME}"
    assert judged_by_task(task(classify=[Rule(name="own", classes=(ACME,), verdict=P)]), Busy()).rule == "own"
    assert judged_by_task(task(classify=Rule(name="own", classes=(ACME,), verdict=P)), Busy()).kind is P


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("transient", Verdict(kind=T, rule="task: classify")),
        (P, Verdict(kind=P, rule="task: classify")),
        (Verdict(kind=T, rule="", retry_after=5), Verdict(kind=T, rule="task: classify", retry_after=5)),
        (Verdict(kind=T, rule="mine"), Verdict(kind=T, rule="mine")),
        (None, Verdict(kind=U, rule="none")),
        ("perhaps", Verdict(kind=U, rule="none")),
    ],
)
def test_a_function_of_a_task_answers_with_a_word_a_verdict_or_nothing(answer, verdict) -> None:
    assert judged_by_task(task(classify=lambda exc: answer), Busy()) == verdict


def test_it_may_be_a_method_of_any_kind() -> None:
    from celery import Task

    class Own(Task):
        answer = "transient"

        def classify(self, exc: BaseException) -> str:
            return self.answer

    class Static(Task):
        @staticmethod
        def classify(exc: BaseException) -> str:
            return "transient"

    class OfClass(Own):
        @classmethod
        def classify(cls, exc: BaseException) -> str:
            return cls.answer

    class Callable:
        def __call__(self, exc: BaseException) -> str:
            return "transient"

    for base in (Own, Static, OfClass):
        assert judged_by_task(task(base=base), Busy()).kind is T
    assert judged_by_task(task(classify=Callable()), Busy()).kind is T
    assert task_rules(type(task(base=Static)))[1] == []


def test_what_a_task_has_wrong_is_a_finding_that_names_it() -> None:
    for classify in (7, lambda: "transient", lambda a, b, c: "transient", {ACME: "transiet"}):
        rules, (finding,) = task_rules(task(classify=classify))
        assert rules == ()
        assert finding.code == "CH013"
        assert finding.where.startswith("classify of task ship")
