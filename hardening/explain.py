"""Why an error is judged as it is, and what follows from it: as plain data, without a worker.

Rules are asked about a specimen: an error of the class that was never raised, with nothing in it but
the code that was given. What rules read from a real error may decide otherwise, and that is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from celery.exceptions import Ignore, Reject, Retry, WorkerShutdown, WorkerTerminate

from .classification.classifier import Classifier, RuleBook
from .classification.rule import Rule
from .classification.verdict import Kind, Verdict
from .core.errors import RetryLater
from .core.snippets import settings_snippet
from .errors_by_name import ErrorClass
from .foreseen import Foreseen, foresee
from .retries.decision import RAISED
from .retries.options import is_celerys_own, options_of
from .retries.policy import RetryPolicy, merged
from .retries.resolve import autoretry
from .typical_codes import typical_codes

__all__ = ["CodeRole", "Explanation", "Otherwise", "explain"]


_ERRNO = "python.os_error"


class CodeRole(StrEnum):
    """What the given code did for the verdict."""

    NOT_GIVEN = "not_given"
    DECIDES = "decides"
    NOT_KNOWN = "not_known"
    NO_ROLE = "no_role"


@dataclass(frozen=True, slots=True, kw_only=True)
class Otherwise:
    """A rule that looks into the error itself, comes first, and may decide otherwise."""

    rule: str
    verdict: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`by_code` has the verdicts of typical codes where rules read codes. `foreseen` is None for `signal`:
    an error that Celery, not a policy, deals with. `waits_are_told`: the error itself says how long."""

    error: str
    code: str
    code_role: CodeRole
    verdict: Kind
    rule: str
    why: str
    dependency: str | None
    by_code: Mapping[str, tuple[str, ...]]
    otherwise: tuple[Otherwise, ...]
    task: str | None
    automatic: bool
    asked: bool
    foreseen: Foreseen | None
    waits_are_told: bool
    signal: str
    notes: tuple[str, ...]
    snippet: str

    def as_dict(self) -> dict[str, Any]:
        """Plain form for --json."""
        plain = asdict(self)
        if self.foreseen is not None:
            plain["foreseen"]["attempts"] = self.foreseen.attempts
        return plain


def explain(
    error: ErrorClass, *, code: str | None, classifier: Classifier, project: RetryPolicy, task: Any = None
) -> Explanation:
    """The verdict on errors of this class, with `code`, and what follows: for `task`, else for any task
    that says nothing itself. `project` is the project's policy."""
    own = None if task is None else options_of(task).book
    court = _Court(error, classifier.books if own is None else (own, *classifier.books), code)
    verdict = court.verdict
    by_code = court.by_code() if code is None else {}
    signal = _signal(error.cls)
    notes = [*([error.note] if error.note else []), *court.notes, *_of_the_class(error.cls)]
    automatic, asked = _who_asks(error.cls, verdict, project, task)
    if task is not None and is_celerys_own(task):
        notes.append(f"{task.name} is Celery's own: only what it asks for itself is tried again.")
    tag = verdict.dependency
    if task is not None and tag is None and verdict.kind is Kind.TRANSIENT:
        tag = options_of(task).dependency
    return Explanation(
        error=error.name,
        code=code or "",
        code_role=court.role(),
        verdict=verdict.kind,
        rule=verdict.rule,
        why=court.why(),
        dependency=tag,
        by_code=by_code,
        otherwise=tuple(court.otherwise()),
        task=None if task is None else str(task.name),
        automatic=automatic,
        asked=asked,
        foreseen=None if signal else _foreseen(verdict, project, task, automatic=automatic, asked=asked),
        waits_are_told=error.cls is not None and issubclass(error.cls, RetryLater),
        signal=signal,
        notes=tuple(notes),
        snippet="" if signal or by_code or verdict.rule != "none" else settings_snippet([error.name]),
    )


class _Court:
    """Asks the rules about errors of one class that carry one code, or none."""

    def __init__(self, error: ErrorClass, books: Sequence[RuleBook], code: str | None) -> None:
        self._error = error
        self._given = books
        self._code = code
        self._specimen = None if error.cls is None else _specimen(error.cls, code)
        self.notes: list[str] = []
        broken = self._broken()
        if broken:
            books = [RuleBook(rule for rule in book.rules if id(rule) not in broken) for book in books]
        self.verdict = self._judged(Classifier(books))
        self.trail = () if self.verdict.rule == RAISED else tuple(self._asked(books))

    def why(self) -> str:
        if self.verdict.rule == RAISED:
            return "The task raised it on purpose."
        return next((rule.why for rule, said in self.trail if said is not None), "No rule knows it.")

    def role(self) -> CodeRole:
        if self._code is None:
            return CodeRole.NOT_GIVEN
        if any(rule.decide is not None and rule.decide(self._code) is not None for rule, _ in self.trail):
            return CodeRole.DECIDES
        without = _Court(self._error, self._given, None).verdict
        if (without.kind, without.rule) != (self.verdict.kind, self.verdict.rule):
            return CodeRole.DECIDES
        reads = any(rule.decide or rule.when or rule.says for rule, _ in self.trail)
        return CodeRole.NOT_KNOWN if reads else CodeRole.NO_ROLE

    def by_code(self) -> dict[str, tuple[str, ...]]:
        """The verdicts of typical codes of the rules that are asked."""
        found: dict[str, list[str]] = defaultdict(list)
        codes = {rule.name: typical_codes(rule) for rule, _ in self.trail}
        if any(several for name, several in codes.items() if name != _ERRNO):
            codes.pop(_ERRNO, None)  # Many libraries' errors derive from OSError and have no errno.
        for code in dict.fromkeys(code for several in codes.values() for code in several):
            found[_Court(self._error, self._given, code).verdict.kind].append(code)
        return {kind.value: tuple(found[kind]) for kind in Kind if kind in found}

    def otherwise(self) -> Iterator[Otherwise]:
        for rule, said in self.trail:
            if rule.says is not None:
                yield Otherwise(rule=rule.name, verdict="", why=rule.why)
            elif rule.when is not None and said is None:
                yield Otherwise(rule=rule.name, verdict=rule.verdict or "", why=rule.why)

    def _judged(self, classifier: Classifier) -> Verdict:
        if self._specimen is None:
            return classifier.judge_name(self._error.name, code=self._code)
        verdict = classifier.judge(self._specimen, code=self._code)
        if isinstance(self._specimen, RetryLater):
            return replace(verdict, retry_after=None)  # The specimen's own says nothing of a real one.
        return verdict

    def _asked(self, books: Sequence[RuleBook]) -> Iterator[tuple[Rule, Verdict | None]]:
        """Each rule that is asked with its answer; the last one decided, unless it answered None."""
        for rule in self._rules(books):
            said = self._answer(rule)
            yield rule, said
            if said is not None:
                return

    def _answer(self, rule: Rule) -> Verdict | None:
        if self._specimen is None:
            return rule.judge_name(code=self._code)
        return rule.judge(self._specimen, code=self._code)

    def _rules(self, books: Sequence[RuleBook]) -> Iterator[Rule]:
        cls = self._error.cls
        for book in books:
            yield from book.named(self._error.name) if cls is None else book.for_class(cls)

    def _broken(self) -> set[int]:
        """Rules that break on a specimen: they are left out, and a note says so."""
        broken: set[int] = set()
        for rule in self._rules(self._given):
            try:
                self._answer(rule)
            except Exception as exc:  # A project's function may expect more than a specimen has.
                broken.add(id(rule))
                why = f"{type(exc).__name__}: {exc}"
                self.notes.append(f"The rule {rule.name!r} needs a real error and was left out ({why}).")
        return broken


class _Answer(dict[str, Any]):
    """An answer of another side, as clients put it on their errors: with attributes, or a mapping."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _specimen(cls: type[BaseException], code: str | None) -> BaseException | None:
    """An error of the class that was never raised; None where none can be made."""
    try:
        error: BaseException = cls.__new__(cls)
    except Exception:
        return None
    carried: dict[str, Any] = {}
    if isinstance(error, RetryLater):
        carried["when"] = 0.0
    if code is not None:
        value = int(code) if code.isascii() and code.isdigit() and len(code) < 10 else code
        metadata = {"HTTPStatusCode": value, "HTTPHeaders": {}} if isinstance(value, int) else {}
        answer = _Answer(status_code=value, headers={}, Error={"Code": code}, ResponseMetadata=metadata)
        carried = {**carried, "code": value, "status": value, "response": answer}
    for name, value in carried.items():
        with suppress(Exception):  # A property, or a class with slots.
            setattr(error, name, value)
    return error


def _of_the_class(cls: type[BaseException] | None) -> Iterator[str]:
    if cls is None:
        yield "Only its name is known: rules about the classes that it derives from were not asked."
    elif issubclass(cls, BaseExceptionGroup):
        yield "A group is judged by its worst member."
    elif cls is TypeError:
        yield "A call of the task with wrong arguments is permanent, whatever other rules say of TypeError."


def _signal(cls: type[BaseException] | None) -> str:
    """What becomes of an error that no policy deals with; "" for all others."""
    if cls is None:
        return ""
    if issubclass(cls, Retry):
        return "Celery's signal that a retry was sent: no failure. Raised by hand it is retry_unpublished."
    if issubclass(cls, Ignore):
        return "Celery's signal that the task settled its own state: no failure, no letter, no retry."
    if issubclass(cls, Reject):
        return (
            "Kept as a dead letter at once, reason rejected; with requeue=True the broker delivers it again."
        )
    if issubclass(cls, MemoryError):
        return (
            "Counts as a death of the process that runs the task: the message comes back after a while, and "
            "is kept as a dead letter, reason poison, when it has had its last start."
        )
    if issubclass(cls, (SystemExit, KeyboardInterrupt, WorkerShutdown, WorkerTerminate)):
        return "Ends the process that runs the task: a death; the message comes back, and ends as poison."
    return ""


def _who_asks(
    cls: type[BaseException] | None, verdict: Verdict, project: RetryPolicy, task: Any
) -> tuple[bool, bool]:
    """Whether the task is tried again unasked, and whether its author asks for it."""
    on_purpose = verdict.rule == RAISED  # Whoever raises Transient or RetryLater asks for another try.
    if task is None:
        return merged(project=project).automatic is not False, on_purpose
    wanted, excluded, _broad = autoretry(task)
    asked = cls is not None and issubclass(cls, wanted) and not issubclass(cls, excluded)
    options = options_of(task)
    automatic = options.automatic(task) and not (cls is not None and issubclass(cls, options.ends))
    return automatic, asked or on_purpose


def _foreseen(verdict: Verdict, project: RetryPolicy, task: Any, *, automatic: bool, asked: bool) -> Foreseen:
    if task is None:
        policy, broad, limited = merged(rule=verdict.retry, project=project), False, False
    else:
        options = options_of(task)
        policy, broad, limited = options.policy(verdict.retry), options.broad, options.limits_attempts
    return foresee(
        verdict,
        policy,
        asked=asked,
        automatic=automatic,
        broad=broad and asked and verdict.rule != RAISED,
        author_limit=limited,
    )
