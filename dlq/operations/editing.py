"""Edit and replay: a letter's arguments as JSON, bound to the signature that its task has now.

What is fixed: the identity of the message (task id, key, replay number, root, parent), its headers, and every
value that redaction hides. A hidden value is shown as a mask and sent as it was; whoever changes, moves or
removes one is refused, for what is put in its place nobody could compare. Of two who edit one letter the
first whose operation claims it has it; the other's item ends as not sent.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from celery import Celery
from django.utils.translation import gettext

from hardening.core.apps import NoCeleryApp, celery_app, loaded_app
from hardening.core.letter import DeadLetter as LetterRecord
from hardening.core.redaction import MASK, Redactor, project_redactor

from ..errors import CannotUnseal, NotEdited
from ..models import DeadLetter, Operation
from .examine import json_arguments, signature_of
from .making import make_operation
from .pace import Unlimited
from .records import sealed_record

__all__ = ["Change", "Edit", "Editable", "Field", "edit", "editable", "make_edit_operation"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_LONGEST_SHOWN = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One argument. `value_json` is what may be shown of it, "" where it is not given.

    `masked`: a part of it is hidden and must stay. `locked`: all of it is. `unknown`: the signature has no
    such parameter, and it is left out. `*name` holds further positional arguments as a list, `**name` further
    keyword arguments as an object.
    """

    name: str
    value_json: str
    masked: bool
    locked: bool
    required: bool
    unknown: bool = False
    annotation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Editable:
    """What of a letter can be edited; or `problem`: why it cannot. `identity` is shown and stays."""

    fields: tuple[Field, ...] = ()
    signature: str = ""
    identity: tuple[tuple[str, str], ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One argument that is sent otherwise than it was kept, as it may be shown."""

    name: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The message that is to be sent, and what is different about it."""

    record: LetterRecord
    changes: tuple[Change, ...]


def editable(letter: DeadLetter, *, app: Celery | None = None) -> Editable:
    """The arguments for a form. Never raises for what a message holds."""
    try:
        known = _Known(letter, app)
    except NotEdited as exc:
        return Editable(problem=str(exc))
    return Editable(
        fields=tuple(known.fields()),
        signature=f"{letter.task_name}{known.signature}",
        identity=(
            ("delivery_key", letter.delivery_key),
            ("replay_number", str(letter.replay_number + 1)),
            ("task_id", letter.replay_task_id),
            ("root_id", letter.root_id),
            ("parent_id", letter.parent_id),
        ),
    )


def edit(letter: DeadLetter, arguments: Mapping[str, str], *, app: Celery | None = None) -> Edit:
    """The message with these arguments: JSON by the names of `editable`; "" or none: not given.

    Raises NotEdited, with `errors` by name.
    """
    known = _Known(letter, app)
    values, errors = known.values_from(arguments)
    if errors:
        raise NotEdited(gettext("some arguments cannot be sent so"), errors)
    args, kwargs = known.call_of(values)
    try:
        known.signature.bind(*args, **kwargs)
    except TypeError as exc:
        raise NotEdited(gettext("the task does not take these arguments: %(why)s") % {"why": exc}) from exc
    return Edit(record=known.record_with(args, kwargs), changes=tuple(known.changes(values)))


def make_edit_operation(
    letter: DeadLetter,
    arguments: Mapping[str, str],
    *,
    by: str,
    why: str = "",
    queue: str | None = None,
    force_queue: bool = False,
    over_limit: bool = False,
    app: Celery | None = None,
) -> tuple[Operation, Edit]:
    """A planned operation with one item: the letter, with these arguments. Raises NotEdited, UnknownQueue."""
    edited = edit(letter, arguments, app=app)
    operation = make_operation(
        letters=[letter.pk],
        by=by,
        source={
            "kind": "edit",
            "letter": str(letter.pk),
            "changes": [{"name": each.name, "old": each.old, "new": each.new} for each in edited.changes],
        },
        why=why,
        queue=queue,
        force_queue=force_queue,
        pace=Unlimited(),
        over_limit=over_limit,
        edited={letter.pk: sealed_record(edited.record)},
        app=app,
    )
    return operation, edited


class _Known:
    """A letter's arguments by the names of its task's signature."""

    def __init__(self, letter: DeadLetter, app: Celery | None) -> None:
        try:
            self._app = loaded_app(app if app is not None else celery_app())
            self.record = letter.record()
        except (NoCeleryApp, CannotUnseal) as exc:
            raise NotEdited(str(exc)) from exc
        found = json_arguments(self.record)
        if found is None:
            raise NotEdited(gettext("only a body in JSON can be edited here; see dlq_export for others"))
        signature = signature_of(self._app, letter.task_name)
        if signature is None:
            raise NotEdited(
                gettext("the task %(task)s is not registered here, or tells no signature")
                % {"task": letter.task_name}
            )
        self.signature = signature
        self._args, self._kwargs = found
        self._hide: Redactor = project_redactor()
        self._secrets = self._hide.secrets_in(self._args, self._kwargs, self.record.argument_names)
        self.given = self._by_name()

    def fields(self) -> list[Field]:
        """All parameters in order, then what the signature does not know."""
        fields = []
        for name, parameter in self._parameters().items():
            shown = self._shown(name)
            fields.append(
                Field(
                    name=name,
                    value_json=_pretty(shown) if name in self.given else "",
                    masked=_has_mask(shown),
                    locked=shown == MASK or self._hide.is_secret((name,)),
                    required=parameter.default is parameter.empty and not name.startswith("*"),
                    annotation=_annotation(parameter),
                )
            )
        unknown = [name for name in self.given if name not in self._parameters()]
        return fields + [
            Field(
                name=name,
                value_json=_pretty(self._shown(name)),
                masked=_has_mask(self._shown(name)),
                locked=True,
                required=False,
                unknown=True,
            )
            for name in unknown
        ]

    def values_from(self, arguments: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
        """The values to send, hidden ones as they were; and what is wrong, by name."""
        values: dict[str, Any] = {}
        errors: dict[str, str] = {}
        parameters = self._parameters()
        for name in arguments:
            if name not in parameters and name not in self.given:
                errors[name] = gettext("the task has no such parameter")
        for name in parameters:
            text = arguments.get(name, "").strip()
            try:
                if text:
                    values[name] = self._restored(name, _parsed(text))
                elif name in self.given and _has_mask(self._shown(name)):
                    raise NotEdited(gettext("it has a hidden value, which cannot be left out"))
                self._check_kind(name, values)
            except NotEdited as exc:
                errors[name] = str(exc)
        return values, errors

    def call_of(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """As positional and keyword arguments, in the way in which they came as far as that is possible."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        more: list[Any] = []
        in_row = True
        for name, parameter in self._parameters().items():
            if name not in values:
                in_row = in_row and parameter.kind not in _POSITIONAL
            elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                more = list(values[name])
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                kwargs |= values[name]
            elif in_row and parameter.kind in _POSITIONAL and self._goes_in_row(name, parameter, values):
                args.append(values[name])
            else:
                kwargs[name] = values[name]
        return [*args, *more], kwargs

    def record_with(self, args: list[Any], kwargs: dict[str, Any]) -> LetterRecord:
        """The letter with these arguments in its body."""
        body = json.loads(self.record.payload.body)
        if isinstance(body, dict):  # Protocol 1
            body |= {"args": args, "kwargs": kwargs}
        else:
            body[0], body[1] = args, kwargs
        safe_args, safe_kwargs = self._hide.arguments(args, kwargs, tuple(self.signature.parameters))
        headers = dict(self.record.payload.headers)
        # They repeat the arguments as text, for tools that show tasks.
        for header, value in (("argsrepr", tuple(safe_args)), ("kwargsrepr", safe_kwargs)):
            if header in headers:
                headers[header] = repr(value)
        payload = replace(self.record.payload, body=json.dumps(body).encode(), headers=headers)
        return replace(self.record, payload=payload)

    def changes(self, values: Mapping[str, Any]) -> list[Change]:
        """What is different, as it may be shown."""
        changes = []
        for name in dict.fromkeys((*self.given, *values)):
            before = _plain(self.given[name]) if name in self.given else ""
            after = _plain(values[name]) if name in values else ""
            if before != after:
                changes.append(
                    Change(
                        name=name,
                        old=_clipped(_plain(self._shown(name))) if name in self.given else "",
                        new=_clipped(_plain(self._safe(name, values[name]))) if name in values else "",
                    )
                )
        return changes

    # Names and values

    def _parameters(self) -> dict[str, inspect.Parameter]:
        stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        return {f"{stars.get(p.kind, '')}{name}": p for name, p in self.signature.parameters.items()}

    def _by_name(self) -> dict[str, Any]:
        """What was sent, by the signature of now where it binds, else by the names that it had then."""
        positional = [name for name, p in self.signature.parameters.items() if p.kind in _POSITIONAL]
        rest = next((n for n, p in self._parameters().items() if p.kind is p.VAR_POSITIONAL), None)
        others = next((n for n, p in self._parameters().items() if p.kind is p.VAR_KEYWORD), None)
        given: dict[str, Any] = {}
        for index, value in enumerate(self._args):
            then = self.record.argument_names[index] if index < len(self.record.argument_names) else ""
            if then in positional and then not in self._kwargs and positional[index : index + 1] != [then]:
                given[then] = value  # The signature has another order now: the name tells.
            elif index < len(positional):
                given[positional[index]] = value
            elif rest is not None:
                given.setdefault(rest, []).append(value)
            else:
                given[then or f"argument {index + 1}"] = value
        known = self._parameters()
        for name, value in self._kwargs.items():
            if name in known or others is None:
                given[name] = value
            else:
                given.setdefault(others, {})[name] = value
        return given

    def _goes_in_row(self, name: str, parameter: inspect.Parameter, values: Mapping[str, Any]) -> bool:
        by_keyword = name in self._kwargs and not any(
            key.startswith("*") for key in values if key[1:2] != "*"
        )
        return parameter.kind is inspect.Parameter.POSITIONAL_ONLY or not by_keyword

    def _check_kind(self, name: str, values: Mapping[str, Any]) -> None:
        if name in values and name.startswith("**") and not isinstance(values[name], dict):
            raise NotEdited(gettext("further keyword arguments are a JSON object"))
        if (
            name in values
            and name.startswith("*")
            and name[1:2] != "*"
            and not isinstance(values[name], list)
        ):
            raise NotEdited(gettext("further arguments are a JSON list"))

    def _shown(self, name: str) -> Any:
        return self._safe(name, self.given[name]) if name in self.given else None

    def _safe(self, name: str, value: Any) -> Any:
        path = () if name.startswith("*") else (name,)
        return _scrubbed(self._hide.value(value, path), self._hide, self._secrets)

    def _restored(self, name: str, new: Any) -> Any:
        if name not in self.given:
            if _has_mask(new):
                raise NotEdited(gettext("it holds a mask, and nothing is hidden there"))
            return new
        path = () if name.startswith("*") else (name,)
        return self._merged(self.given[name], self._shown(name), new, path)

    def _merged(self, old: Any, shown: Any, new: Any, path: tuple[str, ...]) -> Any:
        """`new`, with what is hidden in `old` in the place of its mask."""
        if _plain(new) == _plain(shown):
            return old
        if isinstance(shown, dict) and isinstance(new, dict):
            if any(_has_mask(shown[key]) for key in shown if key not in new):
                raise NotEdited(gettext("a hidden value in it cannot be removed"))
            merged = {}
            for key, value in new.items():
                if key in shown:
                    merged[key] = self._merged(old[key], shown[key], value, (*path, key))
                elif _has_mask(value):
                    raise NotEdited(gettext("it holds a mask, and nothing is hidden there"))
                else:
                    merged[key] = value
            return merged
        if isinstance(shown, list) and isinstance(new, list) and len(shown) == len(new):
            return [self._merged(o, s, n, path) for o, s, n in zip(old, shown, new, strict=True)]
        if _has_mask(shown):
            raise NotEdited(gettext("a hidden value in it cannot be changed"))
        if _has_mask(new):
            raise NotEdited(gettext("it holds a mask, and nothing is hidden there"))
        return new


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise NotEdited(gettext("it is no JSON: %(why)s") % {"why": exc}) from exc


def _scrubbed(value: Any, hide: Redactor, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        return hide.text(value, secrets)
    if isinstance(value, dict):
        return {key: _scrubbed(item, hide, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrubbed(item, hide, secrets) for item in value]
    return value


def _has_mask(value: Any) -> bool:
    if isinstance(value, str):
        return MASK in value
    if isinstance(value, dict):
        return any(map(_has_mask, value.values()))
    return isinstance(value, list) and any(map(_has_mask, value))


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _annotation(parameter: inspect.Parameter) -> str:
    if parameter.annotation is parameter.empty:
        return ""
    found = parameter.annotation
    return found if isinstance(found, str) else inspect.formatannotation(found)
