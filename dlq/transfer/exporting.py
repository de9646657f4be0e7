"""Writes letters as JSON lines or CSV, a piece at a time: nothing holds more than a page of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

from ..models import DeadLetterQuerySet
from .lines import COLUMNS, Contents, columns_of, described, shown_payload
from .paging import letters_with_attempts, paged

__all__ = ["Form", "exported"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


class Form(StrEnum):
    """How a file is written."""

    JSON_LINES = "jsonl"
    CSV = "csv"


def exported(
    letters: DeadLetterQuerySet,
    form: Form,
    *,
    contents: Contents = Contents.NOTHING,
    most: int | None = None,
    on_letter: Callable[[str], object] = lambda _problem: None,
) -> Iterator[str]:
    """The text of the file, in pieces that end with a line. `on_letter` is told of each, with why it is not
    whole.

    CSV has no room for attempts, and none for whole messages (ValueError).
    """
    if form is Form.CSV and contents is Contents.WHOLE:
        raise ValueError("whole messages are written as JSON lines only")
    if contents is Contents.NOTHING:
        letters = letters.defer("sealed")
    if form is Form.CSV:
        return _csv(letters, contents, most, on_letter)
    return _json_lines(letters, contents, most, on_letter)


def _json_lines(
    letters: DeadLetterQuerySet, contents: Contents, most: int | None, on_letter: Callable[[str], object]
) -> Iterator[str]:
    for letter, attempts in letters_with_attempts(letters, most=most):
        line = described(letter, attempts, contents)
        # One line each: JSON writes line ends within texts as escapes.
        yield json.dumps(line, default=str) + "\n"
        on_letter(str(line.get("payload_problem") or ""))


def _csv(
    letters: DeadLetterQuerySet, contents: Contents, most: int | None, on_letter: Callable[[str], object]
) -> Iterator[str]:
    names = [*COLUMNS, *(("arguments", "payload_problem") if contents is Contents.SHOWN else ())]
    yield _row(names)
    for page in paged(letters, most=most):
        for letter in page:
            columns = columns_of(letter)
            problem = ""
            if contents is Contents.SHOWN:
                shown = shown_payload(letter)
                problem = str(shown["payload_problem"])
                columns |= {
                    "arguments": json.dumps(shown["arguments"], ensure_ascii=False),
                    "payload_problem": problem,
                }
            yield _row([columns[name] for name in names])
            on_letter(problem)


def _row(values: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([_harmless(value) for value in values])
    return text.getvalue()


def _harmless(value: Any) -> Any:
    """As text that no program for tables takes for a formula: what producers sent stands in here."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
