"""Judges errors: the layers of rules in their order, the causes of an error, the members of a group."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from hardening.core.errors import Permanent, RetryLater, Transient

from .arguments import wrong_arguments
from .rule import Rule
from .verdict import Kind, Verdict

__all__ = ["Call", "Classifier", "RuleBook", "class_name"]

logger = logging.getLogger("hardening")

Call = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]
"""What was called: the function of the task and its arguments."""

MAX_DEPTH = 20
"""How many causes, and groups within groups, are looked through."""

_MAX_REPORTED = 1_000

# Through Python's own descriptors: a class may put anything in the place of these attributes.
_MRO: Any = vars(type)["__mro__"]
_MODULE: Any = vars(type)["__module__"]
_QUALNAME: Any = vars(type)["__qualname__"]
_CAUSE: Any = vars(BaseException)["__cause__"]
_MEMBERS: Any = vars(BaseExceptionGroup)["exceptions"]

_NONE = Verdict(kind=Kind.UNKNOWN, rule="none")
_RAISED = {
    f"{package}.{cls.__name__}": kind
    for package in ("hardening", "hardening.core.errors")
    for cls, kind in (
        (Permanent, Kind.PERMANENT),
        (Transient, Kind.TRANSIENT),
        (RetryLater, Kind.TRANSIENT),
    )
}


def class_name(cls: type) -> str:
    """The name that rules know a class by: "module.qualname", builtins by their bare name."""
    module, name = _MODULE.__get__(cls), str(_QUALNAME.__get__(cls))
    return name if module == "builtins" else f"{module}.{name}"


class RuleBook:
    """Rules by the names of their classes. Imports nothing: a class that exists has been imported."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._by_name: dict[str, tuple[Rule, ...]] = {}
        for rule in self.rules:
            for name in dict.fromkeys(rule.classes):
                name = name.removeprefix("builtins.")
                self._by_name[name] = (*self._by_name.get(name, ()), rule)
        # Module -> (attribute, name): where a library may publish a class that it defines elsewhere.
        self._places: dict[str, list[tuple[str, str]]] = {}
        for name in self._by_name:
            module, _, attribute = name.rpartition(".")
            if module:
                self._places.setdefault(module, []).append((attribute, name))
        self._known: _Known = (None, WeakKeyDictionary())

    def for_class(self, cls: type) -> tuple[Rule, ...]:
        """The rules about errors of this very class: nearest class of its MRO first, then as they stand."""
        # What a library publishes is known once it is imported, so an answer holds for what is imported.
        imported = tuple(id(sys.modules.get(module)) for module in self._places)
        before, answers = self._known
        if before != imported:
            answers = WeakKeyDictionary()
            self._known = (imported, answers)
        try:
            answer = answers.get(cls)
        except Exception:  # A metaclass may forbid to hash its classes.
            return self._look(cls)[0]
        if answer is None:
            answer, final = self._look(cls)
            if final:
                answers[cls] = answer
        return answer

    def named(self, dotted: str) -> tuple[Rule, ...]:
        """The rules that name this class, where there is only its name."""
        return self._by_name.get(dotted.removeprefix("builtins."), ())

    def _look(self, cls: type) -> tuple[tuple[Rule, ...], bool]:
        aliases, final = self._aliases()
        found: dict[int, Rule] = {}
        for owner in _MRO.__get__(cls):
            for name in (class_name(owner), *aliases.get(id(owner), ()), *self._lazy(owner)):
                for rule in self._by_name.get(name, ()):
                    if owner is cls or not rule.exact:
                        found.setdefault(id(rule), rule)
        return tuple(found.values()), final

    def _aliases(self) -> tuple[dict[int, list[str]], bool]:
        """Names by the id of the class that stands there, and whether no module is half imported yet."""
        aliases: dict[int, list[str]] = {}
        final = True
        for module, places in self._places.items():
            there = sys.modules.get(module)
            if there is None:
                continue
            names = getattr(there, "__dict__", {})
            final = final and not getattr(names.get("__spec__"), "_initializing", False)
            for attribute, name in places:
                published = names.get(attribute)
                # A name that a library keeps for an error of Python's is no name of all such errors.
                if isinstance(published, type) and _MODULE.__get__(published) != "builtins":
                    aliases.setdefault(id(published), []).append(name)
        return aliases, final

    def _lazy(self, cls: type) -> Iterator[str]:
        """Names that a package gives away through its `__getattr__`: asked only for its own class's name."""
        root = str(_MODULE.__get__(cls)).partition(".")[0]
        for module, places in self._places.items():
            there = sys.modules.get(module)
            if module.partition(".")[0] != root or "__getattr__" not in getattr(there, "__dict__", {}):
                continue
            for attribute, name in places:
                if attribute == _QUALNAME.__get__(cls) and getattr(there, attribute, None) is cls:
                    yield name


_Known = tuple[tuple[int, ...] | None, "WeakKeyDictionary[type, tuple[Rule, ...]]"]


class Classifier:
    """Judges errors by books of rules, the first book that has a verdict decides.

    Never raises, whatever error or rule it is given. A rule that raises is reported once for each
    class of errors, and the next rule decides.
    """

    def __init__(
        self, books: Sequence[RuleBook] = (), *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """`clock` turns the time of a RetryLater into a wait."""
        self.books = tuple(books)
        self._clock = clock
        self._reported: set[tuple[str, str]] = set()

    def judge(
        self,
        exc: BaseException,
        *,
        own: RuleBook | None = None,
        code: str | None = None,
        call: Call | None = None,
    ) -> Verdict:
        """The verdict on an error: raised on purpose, a wrong call, `own` rules, then the books.

        `code` stands in for what the rules would read from the error itself. `call` is the call of
        the task that raised it. An error that no rule knows is judged by its cause.
        """
        books = self.books if own is None else (own, *self.books)
        try:
            if call is not None and self._raised(exc) is None and wrong_arguments(exc, *call):
                return Verdict(kind=Kind.PERMANENT, rule="arguments")
            return self._along(exc, books, code, set(), 0) or _NONE
        except Exception:
            # Not of a rule, they are caught one by one: of an error that is not made like others.
            self._report("none", _name(exc))
            return _NONE

    def judge_name(self, dotted: str, *, code: str | None = None, own: RuleBook | None = None) -> Verdict:
        """The verdict where only the name of the error's class is left, and perhaps a code.

        Where this process has the class imported, rules about its bases answer as well.
        """
        kind = _RAISED.get(dotted)
        if kind is not None:
            return Verdict(kind=kind, rule="raised")
        cls = _imported(dotted)
        for book in self.books if own is None else (own, *self.books):
            for rule in book.named(dotted) if cls is None else book.for_class(cls):
                try:
                    verdict = _sound(rule.judge_name(code=code))
                except Exception:
                    self._report(rule.name, dotted)
                    continue
                if verdict is not None:
                    return verdict
        return _NONE

    def _along(
        self, exc: BaseException, books: Sequence[RuleBook], code: str | None, seen: set[int], depth: int
    ) -> Verdict | None:
        """The verdict on an error or the first of its causes that has one."""
        error: BaseException | None = exc
        while error is not None and id(error) not in seen and depth < MAX_DEPTH:
            seen.add(id(error))
            verdict = self._one(error, books, code if error is exc else None)
            if verdict is None and _is(error, BaseExceptionGroup):
                verdict = self._worst(error, books, seen, depth)
            if verdict is not None:
                return verdict if error is exc or verdict.via else replace(verdict, via=_name(error))
            error = _CAUSE.__get__(error)
            depth += 1
        return None

    def _worst(
        self, group: BaseException, books: Sequence[RuleBook], seen: set[int], depth: int
    ) -> Verdict | None:
        worst: Verdict | None = None
        for member in _MEMBERS.__get__(group):
            if id(member) in seen:
                continue  # It had its say.
            verdict = self._along(member, books, None, seen, depth + 1) or _NONE
            if not verdict.via:
                verdict = replace(verdict, via=_name(member))
            if worst is None or _badness(verdict) > _badness(worst):
                worst = verdict
        return worst

    def _one(self, exc: BaseException, books: Sequence[RuleBook], code: str | None) -> Verdict | None:
        """The verdict on this very error, without its cause."""
        raised = self._raised(exc)
        if raised is not None:
            return raised
        for book in books:
            for rule in book.for_class(type(exc)):
                try:
                    broken = partial(self._report, rule.name, _name(exc))
                    verdict = _sound(rule.judge(exc, code=code, broken=broken))
                except Exception:
                    self._report(rule.name, _name(exc))
                    continue
                if verdict is not None:
                    return verdict
        return None

    def _raised(self, exc: BaseException) -> Verdict | None:
        if _is(exc, Permanent):
            return Verdict(kind=Kind.PERMANENT, rule="raised")
        if not _is(exc, Transient):
            return None
        wait = None
        if _is(exc, RetryLater):
            later: Any = exc
            try:
                wait = later.seconds(self._clock())
            except Exception:
                self._report("raised", _name(exc))
        return _sound(Verdict(kind=Kind.TRANSIENT, rule="raised", retry_after=wait))

    def _report(self, rule: str, name: str) -> None:
        if (rule, name) in self._reported or len(self._reported) >= _MAX_REPORTED:
            return
        self._reported.add((rule, name))
        with suppress(Exception):  # A project's log filter may break on the error as well.
            logger.warning(
                "classification rule %r broke on %s; the next rule decides",
                rule,
                name,
                exc_info=sys.exc_info(),
            )


def _sound(verdict: Verdict | None) -> Verdict | None:
    """The verdict as its type promises, whatever a project's rule put in. Raises where that cannot be."""
    if verdict is None:
        return None
    wait: Any = verdict.retry_after
    tag: Any = verdict.dependency
    return replace(
        verdict,
        kind=Kind(verdict.kind),
        code=str(verdict.code),
        retry_after=wait if isinstance(wait, (int, float)) and 0 <= wait < math.inf else None,
        dependency=None if tag is None else str(tag),
    )


def _badness(verdict: Verdict) -> tuple[int, bool, float]:
    rank = (Kind.TRANSIENT, Kind.UNKNOWN, Kind.PERMANENT).index(verdict.kind)
    return rank, not verdict.weak, verdict.retry_after or 0.0


def _is(exc: BaseException, cls: type) -> bool:
    # Not isinstance, which asks `__class__`, and not `in`, which asks the metaclass.
    return any(each is cls for each in _MRO.__get__(type(exc)))


def _name(exc: BaseException) -> str:
    return class_name(type(exc))


def _imported(dotted: str) -> type | None:
    """The class of this name, if it is an error and this process has it already."""
    module, _, name = dotted.rpartition(".")
    found = getattr(sys.modules.get(module or "builtins"), "__dict__", {}).get(name)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
