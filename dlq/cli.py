"""What the dlq_* commands share: how letters are chosen and how they are printed."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from hardening.core.commands import operator, positive

from .lookup import letters_of
from .models import DeadLetter, DeadLetterQuerySet
from .present import attempts_not_kept, visible_payload
from .reasons import explanation_of
from .selection import Selection, parse_ids
from .verdicts import judgement

__all__ = [
    "add_filters",
    "add_selection",
    "as_json",
    "brief",
    "full",
    "full_text",
    "given_ids",
    "ids_of",
    "letter_of",
    "operator",
    "positive",
    "selection_of",
    "summary_of_skipped",
]


def letter_of(text: str) -> DeadLetter:
    """The letter of this id. Raises CommandError for what is no id, and where there is no such letter."""
    try:
        (letter_id,) = parse_ids([text])
    except ValueError as exc:
        raise CommandError(str(exc)) from exc
    letter = letters_of([letter_id]).first()
    if letter is None:
        raise CommandError(f"there is no dead letter {letter_id}")
    return letter


def add_filters(parser: ArgumentParser, *, queue: str = "--queue", reason: str = "--reason") -> None:
    """Filters, each for a whole value. A command that needs --queue or --reason itself renames the filter."""
    parser.add_argument("--task", help="name of the task")
    parser.add_argument(queue, dest="from_queue", help="queue that the message came from")
    parser.add_argument(reason, dest="reason_code", help="reason code of the letter")
    parser.add_argument("--error-class", help="class of the error, with its module")
    parser.add_argument("--verdict", help="verdict on the last error: permanent, transient or unknown")
    parser.add_argument("--group", help="fingerprint of a group of letters")


def add_selection(parser: ArgumentParser, *, every: str = "every open letter") -> None:
    """What the changing commands share: ids, or --all, and --dry-run."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="ids of dead letters")
    parser.add_argument("--all", action="store_true", help=f"{every}; needed without ids and filters")
    parser.add_argument(
        "--limit", type=positive, help="with filters or --all: at most so many, the oldest first"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would happen and change nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def selection_of(options: Mapping[str, Any]) -> Selection:
    """The filters among a command's options."""
    return Selection(
        state=options.get("state"),
        task=options.get("task"),
        queue=options.get("from_queue"),
        reason=options.get("reason_code"),
        error_class=options.get("error_class"),
        verdict=options.get("verdict"),
        group=options.get("group"),
    )


def ids_of(
    options: Mapping[str, Any],
    *,
    fits: Callable[[DeadLetterQuerySet], DeadLetterQuerySet] = DeadLetterQuerySet.open,
) -> list[UUID]:
    """The letters that a changing command means, oldest first. Raises CommandError.

    `fits`: which of those that filters allow.
    """
    given = given_ids(options)
    if given is not None:
        return given
    return list(
        fits(selection_of(options).letters())
        .order_by("failed_at", "pk")
        .values_list("pk", flat=True)[: options["limit"]]
    )


def given_ids(options: Mapping[str, Any]) -> list[UUID] | None:
    """The ids among a command's options; None: filters say which, or --all. Raises CommandError."""
    is_empty = selection_of(options).is_empty
    if options["ids"]:
        if options["all"] or not is_empty:
            raise CommandError("give ids, or filters, or --all: not several of them")
        try:
            return parse_ids(options["ids"])
        except ValueError as exc:
            raise CommandError(str(exc)) from exc
    if is_empty and not options["all"]:
        raise CommandError("nothing selected: give ids or filters, or --all for every one")
    return None


def summary_of_skipped(skipped: Mapping[str, int]) -> str:
    """`replayed 2, missing 1`"""
    return ", ".join(f"{state} {count}" for state, count in sorted(skipped.items()))


def as_json(value: Any) -> str:
    """One JSON object; ids and times as text."""
    return json.dumps(value, default=str, indent=2)


def brief(letter: DeadLetter) -> dict[str, Any]:
    """A letter in one line of a list."""
    return {
        "id": str(letter.pk),
        "state": letter.state,
        "reason": letter.reason,
        "task": letter.task_name,
        "task_id": letter.task_id,
        "queue": letter.queue,
        "error_class": letter.error_class,
        "verdict": letter.verdict,
        "rule": letter.rule,
        "failed_at": letter.failed_at.isoformat(),
        "replay_number": letter.replay_number,
        "captures": letter.captures,
    }


def full(letter: DeadLetter) -> dict[str, Any]:
    """Everything of a letter that may be shown."""
    payload = visible_payload(letter)
    attempts = list(letter.attempts.order_by("-number"))
    return {
        **brief(letter),
        "explanation": explanation_of(letter.reason),
        "error_message": letter.error_message,
        "delivery_key": letter.delivery_key,
        "occurrence": letter.occurrence,
        "root_id": letter.root_id,
        "parent_id": letter.parent_id,
        "exchange": letter.exchange,
        "routing_key": letter.routing_key,
        "priority": letter.priority,
        "eta": letter.eta,
        "expires": letter.expires,
        "redelivered": letter.redelivered,
        "worker": letter.worker,
        "release": letter.release,
        "imported_from": letter.imported_from,
        "versions": letter.versions,
        "canvas": letter.canvas,
        "payload_problem": payload.problem,
        "arguments": {each.name: each.value for each in payload.arguments},
        "headers": {each.name: each.value for each in payload.headers},
        "replay_of": letter.replay_of_id,
        "replays": [str(pk) for pk in letter.replays.values_list("pk", flat=True)],
        "replay_task_id": letter.replay_task_id,
        "claimed_by": letter.claimed_by,
        "claimed_at": letter.claimed_at,
        "replayed_at": letter.replayed_at,
        "replay_error": letter.replay_error,
        "closed_at": letter.closed_at,
        "closed_by": letter.closed_by,
        "discard_reason": letter.discard_reason,
        "attempts_not_kept": attempts_not_kept(attempts),
        "attempts": [
            {
                "number": attempt.number,
                "error_class": attempt.error_class,
                "message": attempt.message,
                "traceback": attempt.traceback,
                "verdict": attempt.verdict,
                "rule": attempt.rule,
                "worker": attempt.worker,
                "started_at": attempt.started_at,
                "failed_at": attempt.failed_at,
            }
            for attempt in attempts
        ],
    }


def full_text(shown: Mapping[str, Any]) -> str:
    """What `full` returned, for a terminal: one field a line, attempts last."""
    lines: list[str] = []
    for name, value in shown.items():
        if name in ("attempts", "attempts_not_kept") or value in (None, "", [], {}):
            continue
        if isinstance(value, Mapping):
            lines.append(f"{name}:")
            lines += [f"    {key}: {each}" for key, each in value.items() if each not in (None, "", [])]
        else:
            lines.append(f"{name}: {value}")
    for attempt in shown["attempts"]:
        lines.append(f"attempt {attempt['number']}: {attempt['error_class']}: {attempt['message']}")
        if judged := judgement(attempt["verdict"], attempt["rule"]):
            lines.append(f"    {judged}")
        lines += [f"    {line}" for line in str(attempt["traceback"]).splitlines()]
    if shown["attempts_not_kept"]:
        lines.append(f"{shown['attempts_not_kept']} earlier attempts are not kept")
    return "\n".join(lines)
