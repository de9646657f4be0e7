"""What may be shown of a payload: decoded, redacted, cut; nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hardening.core.letter import DeadLetter as LetterRecord
from hardening.core.redaction import Redactor, project_redactor

from .errors import CannotUnseal
from .models import Attempt, DeadLetter
from .text import clean

__all__ = ["MOST_CHARACTERS", "Shown", "VisiblePayload", "attempts_not_kept", "visible_payload"]

MOST_CHARACTERS = 10_000
_ARGUMENT_HEADERS = frozenset({"argsrepr", "kwargsrepr"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A name and a value as text."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VisiblePayload:
    """The redacted payload, or `problem`: why it cannot be shown."""

    arguments: tuple[Shown, ...] = ()
    headers: tuple[Shown, ...] = ()
    problem: str = ""


def attempts_not_kept(attempts: Sequence[Attempt]) -> int:
    """How many attempts came before without being among these: the history in a message is bounded."""
    return max(0, max((each.number for each in attempts), default=0) - len(attempts))


def visible_payload(letter: DeadLetter) -> VisiblePayload:
    """The payload for human eyes. Never raises for what a message holds or how it was stored."""
    try:
        record = letter.record()
    except CannotUnseal as exc:
        return VisiblePayload(problem=str(exc))
    hide = project_redactor()
    headers = tuple(
        Shown(name=clean(str(name)), value=_text(hide.value(value, (str(name),)), hide, ()))
        for name, value in sorted(record.payload.headers.items())
        # They repeat the arguments as text, where names no longer tell what is secret.
        if name not in _ARGUMENT_HEADERS
    )
    decoded = _decode(record)
    if decoded is None:
        size = len(record.payload.body)
        kind = clean(str(record.payload.content_type or "unknown type"))
        return VisiblePayload(
            headers=headers, problem=f"{size} bytes of {kind}: only JSON is decoded for display"
        )
    args, kwargs = decoded
    return VisiblePayload(arguments=_arguments(args, kwargs, record.argument_names, hide), headers=headers)


def _arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], hide: Redactor
) -> tuple[Shown, ...]:
    secrets = hide.secrets_in(args, kwargs, names)
    safe_args, safe_kwargs = hide.arguments(args, kwargs, names)
    positional = [
        Shown(name=names[i] if i < len(names) else f"*{i + 1}", value=_text(value, hide, secrets))
        for i, value in enumerate(safe_args)
    ]
    return (
        *positional,
        *(Shown(name=clean(k), value=_text(v, hide, secrets)) for k, v in safe_kwargs.items()),
    )


def _decode(record: LetterRecord) -> tuple[Sequence[Any], Mapping[str, Any]] | None:
    if record.payload.content_type != "application/json":
        return None
    try:
        body = json.loads(record.payload.body)
    except (ValueError, RecursionError):
        return None
    if isinstance(body, dict):  # Protocol 1
        body = [body.get("args", []), body.get("kwargs", {})]
    if isinstance(body, list) and len(body) >= 2 and isinstance(body[0], list) and isinstance(body[1], dict):
        return body[0], body[1]
    return None


def _text(value: Any, hide: Redactor, secrets: Sequence[str]) -> str:
    # Cleaned: JSON lets through lone surrogates, of which no page can be made.
    text = clean(json.dumps(_scrub(value, hide, secrets), indent=2, ensure_ascii=False, default=str))
    if len(text) > MOST_CHARACTERS:
        return f"{text[:MOST_CHARACTERS]}… ({len(text) - MOST_CHARACTERS} more characters)"
    return text


def _scrub(value: Any, hide: Redactor, secrets: Sequence[str]) -> Any:
    # Texts may hold secrets themselves: a URL with a token, a form body, JSON in a string.
    if isinstance(value, str):
        return hide.text(value, secrets)
    if isinstance(value, Mapping):
        return {str(key): _scrub(item, hide, secrets) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_scrub(item, hide, secrets) for item in value]
    return value
