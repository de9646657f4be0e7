"""The classifier asks the layers in their order, looks behind an error, and never raises."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pytest

from hardening.classification.classifier import Classifier, RuleBook, class_name
from hardening.classification.current import classifier_for, project_classifier
from hardening.classification.rule import Rule
from hardening.classification.verdict import Kind, Verdict
from hardening.conf import load_settings
from hardening.core.errors import Permanent, RetryLater, Transient
from hardening.retries.policy import RetryPolicy

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
P, T, U = Kind.PERMANENT, Kind.TRANSIENT, Kind.UNKNOWN


class Base(Exception):
    pass


class Derived(Base):
    pass


BASE, DERIVED = class_name(Base), class_name(Derived)


def rule(name: str, cls: str, verdict: Kind | None = T, **more) -> Rule:
    return Rule(name=name, classes=(cls,), verdict=verdict, **more)


def judged(exc: BaseException, *rules: Rule, **more) -> Verdict:
    return Classifier((RuleBook(rules),), clock=lambda: NOW).judge(exc, **more)


def test_what_no_rule_knows_is_unknown() -> None:
    assert judged(Base()) == Verdict(kind=U, rule="none")


def test_the_nearest_class_decides_whatever_the_order_of_the_rules() -> None:
    rules = (rule("any", "Exception", P), rule("base", BASE, P), rule("derived", DERIVED))

    assert judged(Derived(), *rules).rule == "derived"
    assert judged(Base(), *rules).rule == "base"
    assert judged(KeyError(), *rules).rule == "any"


def test_a_rule_without_an_answer_passes_on_to_the_next_then_to_the_next_class() -> None:
    rules = (
        rule("silent", DERIVED, None, read=lambda _: "7", decide=lambda _: None),
        rule("no", DERIVED, when=lambda _: False),
        rule("base", BASE, P),
    )

    assert judged(Derived(), *rules).rule == "base"


def test_an_exact_rule_leaves_subclasses_alone() -> None:
    assert judged(Derived(), rule("exact", BASE, exact=True)).rule == "none"
    assert judged(Base(), rule("exact", BASE, exact=True)).rule == "exact"


def test_the_tasks_own_rules_come_before_the_projects_and_those_before_the_built_in_ones() -> None:
    books = (RuleBook([rule("project", BASE)]), RuleBook([rule("built-in", DERIVED)]))
    classifier = Classifier(books)

    assert classifier.judge(Derived()).rule == "project"  # Though the other one is nearer.
    assert classifier.judge(Derived(), own=RuleBook([rule("task", "Exception", P)])).rule == "task"
    assert classifier.judge(Derived(), own=RuleBook()).rule == "project"


def test_what_is_raised_on_purpose_is_beyond_all_rules() -> None:
    everything = rule("everything", "BaseException", U)

    assert judged(Permanent("gone"), everything) == Verdict(kind=P, rule="raised")
    assert judged(Transient("later"), everything) == Verdict(kind=T, rule="raised")
    assert judged(RetryLater(90), everything) == Verdict(kind=T, rule="raised", retry_after=90.0)
    assert judged(RetryLater(NOW + timedelta(minutes=2))).retry_after == 120.0
    assert judged(RetryLater(NOW - timedelta(minutes=2))).retry_after == 0.0


def test_a_rule_says_its_code_dependency_wait_and_policy() -> None:
    policy = RetryPolicy(base=7)
    said = judged(
        Base(503),
        rule(
            "http",
            BASE,
            P,
            read=lambda exc: str(exc.args[0]),
            decide={"503": T}.get,
            retry_after=lambda _: 30,
            dependency=lambda _: "acme",
            retry=policy,
        ),
    )

    assert said == Verdict(kind=T, rule="http", code="503", retry_after=30, dependency="acme", retry=policy)


@pytest.mark.parametrize("wait", [-1, float("inf"), float("nan"), "soon"])
def test_a_wait_that_cannot_be_waited_for_is_none(wait) -> None:
    assert judged(Base(), rule("r", BASE, retry_after=lambda _: wait)).retry_after is None


def test_a_weak_rule_gives_weak_verdicts_also_by_a_function_and_of_a_cause() -> None:
    def answer(_: BaseException) -> Verdict:
        return Verdict(kind=P, rule="")

    for weak in (rule("r", BASE, P, weak=True), rule("r", BASE, None, says=answer, weak=True)):
        outer = ValueError()
        outer.__cause__ = Base()
        assert judged(Base(), weak) == Verdict(kind=P, rule="r", weak=True)
        assert judged(outer, weak) == Verdict(kind=P, rule="r", via=BASE, weak=True)
    assert not judged(Base(), rule("r", BASE, P)).weak


def test_words_in_place_of_a_kind_are_understood() -> None:
    loose: object = "transient"

    assert judged(Base(), rule("r", BASE, loose)).kind is T  # type: ignore[arg-type]


def test_a_given_code_stands_in_for_what_would_be_read_but_not_of_a_cause() -> None:
    codes = rule("r", BASE, None, read=lambda _: "1", decide={"1": P, "2": T}.get)
    outer = Exception()
    outer.__cause__ = Base()

    assert judged(Base(), codes, code="2").kind is T
    assert judged(outer, codes, code="2").kind is P


def test_an_unknown_error_is_judged_by_its_cause() -> None:
    middle, outer = KeyError(), ValueError()
    middle.__cause__, outer.__cause__ = Derived(), middle

    assert judged(outer, rule("base", BASE)) == Verdict(kind=T, rule="base", via=DERIVED)


def test_a_permanent_cause_counts_behind_an_unknown_error_only() -> None:
    outer = Base()
    outer.__cause__ = Permanent()

    assert judged(outer).rule == "raised"
    assert judged(outer, rule("base", BASE)).rule == "base"


def test_an_error_that_was_only_being_handled_is_no_cause() -> None:
    outer = ValueError()
    outer.__context__ = Base()

    assert judged(outer, rule("base", BASE)).rule == "none"


def test_causes_in_a_circle_and_without_end_are_unknown() -> None:
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    last: BaseException = Base()
    for _ in range(1000):
        outer = ValueError()
        outer.__cause__ = last
        last = outer

    assert judged(first, rule("base", BASE)).rule == "none"
    assert judged(last, rule("base", BASE)).rule == "none"


def test_of_a_group_the_worst_member_counts() -> None:
    rules = (
        rule("derived", DERIVED, retry_after=lambda _: 5.0),
        rule("base", BASE, retry_after=lambda _: 9.0),
        rule("key", "KeyError", P),
    )

    def group(*members: Exception) -> Verdict:
        return judged(ExceptionGroup("several", members), *rules)

    assert group(Derived(), Base(), Derived()) == Verdict(kind=T, rule="base", retry_after=9.0, via=BASE)
    assert group(Base(), ValueError()) == Verdict(kind=U, rule="none", via="ValueError")
    assert group(ValueError(), KeyError(), Base()) == Verdict(kind=P, rule="key", via="KeyError")
    assert group(ExceptionGroup("inner", [Base(), KeyError()])).rule == "key"
    assert group(Permanent(), Base()).rule == "raised"


def test_a_group_may_have_a_rule_of_its_own_and_be_a_cause() -> None:
    outer = ValueError()
    outer.__cause__ = ExceptionGroup("several", [Base()])

    assert judged(outer, rule("base", BASE)).via == BASE
    assert judged(ExceptionGroup("", [Base()]), rule("group", "ExceptionGroup", P)).rule == "group"


def test_groups_that_share_their_members_are_judged_in_a_moment() -> None:
    group: ExceptionGroup[Exception] = ExceptionGroup("", [Base()])
    for _ in range(200):
        group = ExceptionGroup("", [group, group])

    assert judged(group, rule("base", BASE)).rule in {"base", "none"}


def test_a_rule_that_breaks_is_reported_once_and_the_next_one_decides(caplog) -> None:
    def broken(exc: BaseException) -> bool:
        raise ZeroDivisionError

    classifier = Classifier((RuleBook([rule("broken", BASE, when=broken), rule("next", BASE)]),))
    with caplog.at_level(logging.WARNING, logger="hardening"):
        verdicts = [classifier.judge(exc) for exc in (Base(), Base(), Derived())]

    assert [verdict.rule for verdict in verdicts] == ["next"] * 3
    assert [record.name for record in caplog.records] == ["hardening"] * 2
    assert [("broken" in text, text.count(".Base"), text.count(".Derived")) for text in caplog.messages] == [
        (True, 1, 0),
        (True, 0, 1),
    ]


def test_a_rule_that_answers_with_nonsense_breaks_too() -> None:
    nonsense: object = "perhaps"

    assert judged(Base(), rule("bad", BASE, nonsense), rule("next", BASE)).rule == "next"  # type: ignore[arg-type]


class Evil(BaseException):
    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__

    @property  # type: ignore[misc]
    def __class__(self):
        raise ValueError

    @property
    def __cause__(self):  # type: ignore[override]
        raise ValueError

    @property
    def args(self):  # type: ignore[override]
        raise ValueError


class EvilMeta(type):
    __mro__ = ()

    def __hash__(cls) -> int:
        raise ValueError

    def __eq__(cls, other: object) -> bool:
        raise ValueError

    def __instancecheck__(cls, instance: object) -> bool:
        raise ValueError


class EvilType(Base, metaclass=EvilMeta):
    __module__ = 7  # type: ignore[assignment]


class EvilGroup(ExceptionGroup):
    @property
    def exceptions(self):
        raise ValueError


def test_no_error_however_made_breaks_the_classifier() -> None:
    rules = (rule("base", BASE), rule("texts", "BaseException", None, read=str, decide=lambda _: T))

    assert judged(Evil(), *rules).kind is U
    assert judged(EvilType(), *rules).rule == "base"
    assert judged(EvilGroup("", [Base()]), rule("base", BASE)).rule == "base"
    assert Classifier().judge(Evil()).rule == "none"
    assert project_classifier().judge(Evil()).kind is U
    assert project_classifier().judge(EvilType()).kind is U


def test_wrong_arguments_are_permanent_before_any_rule_but_not_before_what_is_raised_on_purpose() -> None:
    def task(order: int) -> None:
        pass

    everything = rule("everything", "BaseException")
    with pytest.raises(TypeError) as caught:
        task()  # type: ignore[call-arg]

    assert judged(caught.value, everything, call=(task, (), {})) == Verdict(kind=P, rule="arguments")
    assert judged(caught.value, everything, call=(task, (1,), {})).rule == "everything"
    assert judged(Transient(), everything, call=(task, (), {})).rule == "raised"


def test_a_public_name_of_a_class_finds_it_wherever_it_is_defined(monkeypatch) -> None:
    book = RuleBook([rule("public", "acme_public.Busy", exact=True)])
    classifier = Classifier((book,))
    assert classifier.judge(Base()).rule == "none"

    published = ModuleType("acme_public")
    published.Busy = Base  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "acme_public", published)
    assert classifier.judge(Base()).rule == "public"
    assert classifier.judge(Derived()).rule == "none"

    monkeypatch.delitem(sys.modules, "acme_public")
    assert classifier.judge(Base()).rule == "none"
    assert "acme_public" not in sys.modules


def test_a_package_that_publishes_lazily_is_asked_only_for_its_own_classes(monkeypatch) -> None:
    asked: list[str] = []
    lazy = ModuleType("acme_lazy")
    own = type("Busy", (Exception,), {"__module__": "acme_lazy._errors"})

    def getter(name: str) -> type:
        asked.append(name)
        return own

    lazy.__getattr__ = getter  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "acme_lazy", lazy)
    book = RuleBook([rule("lazy", "acme_lazy.Busy"), rule("other", "acme_lazy.Other")])

    assert [each.name for each in book.for_class(own)] == ["lazy"]
    assert book.for_class(Base) == ()
    assert asked == ["Busy"]


def test_a_builtin_is_known_by_its_bare_name_and_by_its_full_one() -> None:
    assert judged(ConnectionResetError(), rule("r", "builtins.ConnectionError")).rule == "r"
    assert judged(ConnectionResetError(), rule("r", "ConnectionError")).rule == "r"


def test_by_name_alone_only_what_needs_no_error_answers() -> None:
    classifier = Classifier(
        (
            RuleBook(
                [
                    rule("asks", "acme.Busy", P, when=lambda _: True),
                    rule("says", "acme.Busy", None, says=lambda _: P),
                    rule("codes", "acme.Busy", None, decide={"503": T}.get, dependency="acme"),
                    rule("plain", "acme.Busy", U, read=str, dependency=str),
                ]
            ),
        )
    )

    assert classifier.judge_name("acme.Busy") == Verdict(kind=U, rule="plain")
    assert classifier.judge_name("acme.Busy", code="503") == Verdict(
        kind=T, rule="codes", code="503", dependency="acme"
    )
    assert classifier.judge_name("acme.Other").rule == "none"
    assert classifier.judge_name("hardening.core.errors.Permanent") == Verdict(kind=P, rule="raised")


def test_a_name_whose_class_is_imported_is_judged_by_its_bases_too() -> None:
    classifier = Classifier((RuleBook([rule("base", BASE), rule("connection", "ConnectionError")]),))

    assert classifier.judge_name(DERIVED).rule == "base"
    assert classifier.judge_name("ConnectionResetError").rule == "connection"
    assert classifier.judge_name("os.path").rule == "none"


def test_the_projects_classifier_follows_a_change_of_the_settings(settings) -> None:
    settings.HARDENING = {"CLASSIFY": {BASE: "transient", "KeyError": "transient"}}
    assert project_classifier().judge(Base()).rule == f"project: {BASE}"
    assert project_classifier().judge(KeyError()).kind is T

    settings.HARDENING = {}
    assert project_classifier().judge(Base()).rule == "none"
    assert project_classifier().judge(KeyError()).kind is P
    assert classifier_for(load_settings()[0]).judge(KeyError()).kind is P


def test_a_name_that_a_library_keeps_for_an_error_of_pythons_is_no_name_of_all_such_errors(
    monkeypatch,
) -> None:
    library = ModuleType("library_that_gave_up_its_error")
    library.OldError = ValueError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, library.__name__, library)
    rule = Rule(name="old", classes=(f"{library.__name__}.OldError",), verdict=Kind.PERMANENT)

    assert Classifier((RuleBook((rule,)),)).judge(ValueError("x")).kind is Kind.UNKNOWN
