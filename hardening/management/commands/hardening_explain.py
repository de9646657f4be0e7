"""Prints what is said of an error class, by which rule, and which attempts would follow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import groupby
from typing import Any

from celery import Celery
from django.core.management.base import BaseCommand, CommandError, CommandParser

from hardening.classification.classifier import Classifier
from hardening.classification.current import project_classifier
from hardening.conf import load_settings
from hardening.core.commands import app_with_tasks
from hardening.errors_by_name import ErrorClass, NoErrorClass, find_error
from hardening.explain import CodeRole, Explanation, explain
from hardening.foreseen import MOST_ATTEMPTS, Foreseen
from hardening.plugin import hardened
from hardening.retries.durations import text_of
from hardening.retries.options import options_of

_VERDICTS = {
    "permanent": "another try cannot succeed",
    "transient": "another try can help",
    "unknown": "no rule says whether another try can help",
}
_ROLES = {
    CodeRole.DECIDES: "{code}: it decides",
    CodeRole.NOT_KNOWN: "{code}: the rules that read codes do not know it",
    CodeRole.NO_ROLE: "{code}: it plays no role, no rule about this class reads codes",
}


class Command(BaseCommand):
    """`manage.py hardening_explain EXCEPTION [--status CODE] [--task NAME] [--json]`."""

    help = "Show how an error is classified, by which rule, and which attempts would follow."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "exception", metavar="EXCEPTION", help="dotted path of a class; builtins by name: ValueError"
        )
        parser.add_argument(
            "--status",
            metavar="CODE",
            help="a code that the error carries: HTTP status, SMTP reply, errno name, SQLSTATE, AWS, gRPC",
        )
        parser.add_argument("--task", metavar="NAME", help="judge as for this task, with its own options")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        app = app_with_tasks()
        task = None if options["task"] is None else _task(app, options["task"])
        classifier = project_classifier()
        try:
            error = _find(options["exception"], classifier, task)
        except NoErrorClass as exc:
            raise CommandError(str(exc)) from exc
        found = explain(
            error,
            code=(options["status"] or "").strip() or None,
            classifier=classifier,
            project=load_settings()[0].retry_layer,
            task=task,
        )
        reporting = hardened(app).reporting
        if options["json"]:
            self.stdout.write(json.dumps({**found.as_dict(), "in_force": not reporting}, indent=2))
            return
        for line in _lines(found):
            self.stdout.write(line)
        if reporting:
            self.stdout.write('\nHARDENING["MODE"] is "report": nothing of this is in force.')


def _task(app: Celery, name: str) -> Any:
    hardened(app)
    if name in app.tasks:
        return app.tasks[name]
    close = get_close_matches(name, list(app.tasks), n=3, cutoff=0.5)
    hint = f"Did you mean {', '.join(close)}?" if close else "manage.py hardening_status lists them."
    raise CommandError(f"There is no task {name!r}. {hint}")


def _find(path: str, classifier: Classifier, task: Any) -> ErrorClass:
    own = None if task is None else options_of(task).book
    books = classifier.books if own is None else (own, *classifier.books)
    return find_error(
        path, named_by_rules=[name for book in books for rule in book.rules for name in rule.classes]
    )


def _lines(found: Explanation) -> Iterator[str]:
    yield found.error
    yield _row("verdict", f"{found.verdict}, {_VERDICTS[found.verdict]}")
    yield _row("rule", f"{found.rule}: {found.why}" if found.why else found.rule)
    if found.code_role is not CodeRole.NOT_GIVEN:
        yield _row("code", _ROLES[found.code_role].format(code=found.code))
    yield _row("dependency", found.dependency or "none")
    if found.task is not None:
        yield _row("task", f"{found.task}, {_who(found)}")
    yield from _by_code(found)
    for each in found.otherwise:
        said = f"may say {each.verdict}" if each.verdict else "may say otherwise"
        yield _row("unless", f"{each.rule} {said} of a real error, into which it looks: {each.why}")
    for note in found.notes:
        yield _row("note", note)
    yield ""
    yield from _what_follows(found)
    if found.snippet:
        yield "\nIf you know better, say so in the settings:\n"
        yield found.snippet


def _row(name: str, text: str) -> str:
    return f"  {name:<11} {text}"


def _who(found: Explanation) -> str:
    if found.asked:
        return "which asks for retries of this error"
    return "retried on its own" if found.automatic else "not retried on its own"


def _by_code(found: Explanation) -> Iterator[str]:
    if not found.by_code:
        return
    yield _row("codes", "a code that the error carries may decide:")
    for verdict, codes in found.by_code.items():
        yield _row("", f"{verdict:<9} {' '.join(codes)}")
    example = next(iter(found.by_code.values()))[0]
    yield _row("", f"ask for one: manage.py hardening_explain {found.error} --status {example}")


def _what_follows(found: Explanation) -> Iterator[str]:
    ahead = found.foreseen
    if ahead is None:
        yield found.signal
        return
    if not ahead.delays:
        yield f"Dead-lettered at the first attempt, reason {ahead.reason}: {ahead.reason.explanation}"
        return
    more = "more than " if ahead.more else "up to "
    yield f"Tried {more}{MOST_ATTEMPTS if ahead.more else ahead.attempts} times in all, as long as it fails:"
    if found.waits_are_told:
        yield "  each wait is the one that the error asks for, and up to 10 % more (at most 60 s)"
    else:
        yield from _waits(ahead)
        yield f"  from the first failure to the last attempt: {_range(*ahead.span)}"
    yield f"Then a dead letter, reason {ahead.reason}: {ahead.reason.explanation}"
    if ahead.if_slow is not None:
        yield f"Where the waits turn out long, earlier: reason {ahead.if_slow}: {ahead.if_slow.explanation}"
    if found.dependency:
        yield f"While {found.dependency} is known to be down, it waits without using an attempt."


def _waits(ahead: Foreseen) -> Iterator[str]:
    """One line for each run of equal ranges."""
    number = 1
    for bounds, run in groupby(ahead.delays):
        last = number + len(list(run)) - 1
        which = f"attempt {number}" if last == number else f"attempts {number} to {last}"
        yield f"  after {which:<19} {_range(*bounds)}"
        number = last + 1


def _range(low: float, high: float) -> str:
    return text_of(low) if text_of(low) == text_of(high) else f"{text_of(low)} to {text_of(high)}"
