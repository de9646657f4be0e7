"""One rule: which errors it is about, and what it says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from .verdict import Kind, Verdict

if TYPE_CHECKING:
    from hardening.retries.policy import RetryPolicy

__all__ = ["Rule"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Errors by the dotted names of their classes, so that no optional library is imported.

    A rule is about an error when one of `classes` is in the error's MRO (with `exact`: is its very
    class) and `when` answers true. `read` takes a code from the error, always a string; `decide`
    turns the code into a verdict, or None. Where the code decides nothing, `verdict` holds; where
    that is None too, the rule says nothing and the next one is asked. `retry_after` reads the
    seconds that the other side asked for. `says` takes the place of all of these: it answers with a
    kind, a whole verdict, or None. `weak` goes into the verdict: see there. The functions of a
    project's rule may raise whatever they like: the classifier reports it and asks the next rule.
    """

    name: str
    classes: tuple[str, ...]
    verdict: Kind | None = None
    read: Callable[[BaseException], str | None] | None = None
    decide: Callable[[str], Kind | None] | None = None
    when: Callable[[BaseException], bool] | None = None
    retry_after: Callable[[BaseException], float | None] | None = None
    dependency: str | Callable[[BaseException], str | None] | None = None
    retry: RetryPolicy | None = None
    exact: bool = False
    weak: bool = False
    says: Callable[[BaseException], Kind | Verdict | None] | None = None
    why: str = ""

    def judge(
        self, exc: BaseException, *, code: str | None = None, broken: Callable[[], None] | None = None
    ) -> Verdict | None:
        """The rule's verdict on an error of one of its classes, or None. `code` stands in for `read`.

        A wait or a dependency that cannot be read costs no verdict: `broken` is told, in place of the error.
        """
        if self.when is not None and not self.when(exc):
            return None
        if self.says is not None:
            said = self.says(exc)
            if isinstance(said, Verdict):
                return replace(said, rule=said.rule or self.name, weak=said.weak or self.weak)
            return self._verdict(said, "", exc, broken)
        found = code
        if found is None and self.read is not None:
            found = self.read(exc)
        return self._verdict(self._kind(found), found or "", exc, broken)

    def judge_name(self, *, code: str | None = None) -> Verdict | None:
        """The rule's verdict where only the name of a class is left, and perhaps a code.

        What asks the error itself does not answer: a rule with `when` or `says`, a dependency or a
        wait that is read from the error.
        """
        if self.when is not None or self.says is not None:
            return None
        return self._verdict(self._kind(code), code or "", None)

    def _kind(self, code: str | None) -> Kind | None:
        if code is not None and self.decide is not None:
            return self.decide(code) or self.verdict
        return self.verdict

    def _verdict(
        self,
        kind: Kind | None,
        code: str,
        exc: BaseException | None,
        broken: Callable[[], None] | None = None,
    ) -> Verdict | None:
        if kind is None:
            return None
        wait, tag = None, self.dependency if isinstance(self.dependency, str) else None
        if exc is not None:
            if self.retry_after is not None and kind is not Kind.PERMANENT:
                wait = _read(self.retry_after, exc, broken)
            if callable(self.dependency):
                tag = _read(self.dependency, exc, broken)
        return Verdict(
            kind=kind,
            rule=self.name,
            code=code,
            retry_after=wait,
            dependency=tag,
            retry=self.retry,
            weak=self.weak,
        )


def _read(
    read: Callable[[BaseException], T | None], exc: BaseException, broken: Callable[[], None] | None
) -> T | None:
    try:
        return read(exc)
    except Exception:
        if broken is None:
            raise
        broken()
        return None
