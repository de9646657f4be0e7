"""Why jobs died: the verdict and the rule of their last attempts, as their letters say. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from sample_project.demo.ledger import Attempt, Letter, LetterState
from sample_project.demo.table import laid_out

_HEAD = ("job", "letters", "verdict", "rule that decided", "attempts", "shortest wait", "reason")
_WORDS = (0, 2, 3, 6)

_Said = tuple[str, str, str]


def why(published: Mapping[str, str], letters: Iterable[Letter], *, kinds: Collection[str] = ()) -> str:
    """A table of the open letters, one line for each kind of job and each verdict, rule and reason.

    `published` maps delivery key to kind. The letters of keys that were never published are not in it.
    """
    groups: dict[str, defaultdict[_Said, list[Letter]]] = {kind: defaultdict(list) for kind in kinds}
    for letter in letters:
        kind = published.get(letter.key)
        if kind is not None and letter.state is LetterState.OPEN:
            groups.setdefault(kind, defaultdict(list))[_said(letter)].append(letter)
    lines = [
        _cells(kind, said, found) for kind, group in groups.items() for said, found in sorted(group.items())
    ]
    return "\n".join(laid_out([_HEAD, *lines], words=_WORDS))


def waits(attempts: Sequence[Attempt]) -> list[float]:
    """The seconds between the end of each attempt and the beginning of the next."""
    return [
        (after.began - before.failed).total_seconds()
        for before, after in pairwise(attempts)
        if before.failed is not None and after.began is not None
    ]


def _said(letter: Letter) -> _Said:
    last = letter.attempts[-1] if letter.attempts else Attempt()
    return last.verdict, last.rule, letter.reason


def _cells(kind: str, said: _Said, letters: Sequence[Letter]) -> tuple[str, ...]:
    verdict, rule, reason = said
    tries = sorted({len(letter.attempts) for letter in letters})
    count = str(tries[0]) if len(tries) == 1 else f"{tries[0]}-{tries[-1]}"
    waited = [wait for letter in letters for wait in waits(letter.attempts)]
    shortest = f"{min(waited):.1f} s" if waited else "."
    return (kind, str(len(letters)), verdict or ".", rule or ".", count, shortest, reason)
