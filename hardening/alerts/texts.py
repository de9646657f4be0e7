"""Facts as they may be kept and shown: without secrets, in one line where one is due, and not too long."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from hashlib import sha256

from hardening.core.alerts import Fact
from hardening.core.redaction import Redactor

__all__ = ["MOST_FACTS", "OTHERS", "bounded", "clean"]

MOST_FACTS = 20
"""Incidents of one condition that are told one by one: more at a time are one that counts them."""

OTHERS = "(others)"
_SUBJECT, _SUMMARY, _DETAIL, _LINK = 120, 240, 600, 240


def clean(facts: Iterable[Fact], redactor: Redactor) -> list[Fact]:
    """Each subject once. Lengths are in bytes, as JSON has them: the store's documents are bounded."""
    found: dict[str, Fact] = {}
    for fact in facts:
        summary = _line(redactor.text(fact.summary), _SUMMARY)
        link = _line(redactor.text(fact.link), _LINK)
        subject = _named(redactor.text(fact.subject))
        detail = _cut(redactor.text(fact.detail), _DETAIL)
        found.setdefault(subject, Fact(subject, summary or subject, detail, link))
    return list(found.values())


def bounded(facts: list[Fact], known: Container[str]) -> list[Fact]:
    """At most MOST_FACTS and the one of the others; those come first that have an incident already."""
    ordered = sorted(facts, key=lambda fact: fact.subject not in known)
    kept, others = ordered[:MOST_FACTS], ordered[MOST_FACTS:]
    if not others:
        return kept
    detail = _cut("\n".join(fact.summary for fact in others[:10]), _DETAIL)
    return [*kept, Fact(OTHERS, f"{len(others)} more, such as: {others[0].summary}"[:_SUMMARY], detail)]


def _named(subject: str) -> str:
    name = _line(subject, _SUBJECT)
    if name == " ".join(subject.split()):
        return name
    # Two long names that begin alike are still two.
    return f"{_line(subject, _SUBJECT - 12)}~{sha256(subject.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _line(text: str, most: int) -> str:
    return _cut(" ".join(text.split()), most)


def _cut(text: str, most: int) -> str:
    text = text.encode("utf-8", "replace").decode()
    size = 0
    for position, letter in enumerate(text):
        size += len(json.dumps(letter)) - 2
        if size > most:
            return text[: max(0, position - 3)] + "..."
    return text
