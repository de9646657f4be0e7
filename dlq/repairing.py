"""A letter's message as files: exported to be repaired, and read again to be sent.

Files hold the message as it was, secrets included: they are made for their owner alone.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import CommandError

from hardening.core.letter import DeadLetter as LetterRecord

from .message import Repair

__all__ = ["STANDARD", "add_repair", "message_file", "new_file", "repair_of", "write_file"]

STANDARD = "-"
"""Instead of a path: standard output, or input."""

_OWNER_ONLY = 0o600


def message_file(record: LetterRecord) -> bytes:
    """All of a message but its body, as JSON: `repair_of` reads its headers and its content type."""
    shown = {
        "content_type": record.payload.content_type,
        "content_encoding": record.payload.content_encoding,
        "headers": dict(record.payload.headers),
        "properties": dict(record.payload.properties),
        "exchange": record.exchange,
        "routing_key": record.routing_key,
        "queue": record.queue,
    }
    return json.dumps(shown, indent=2, default=str).encode() + b"\n"


def write_file(path: str, content: bytes) -> None:
    """Write for the owner's eyes; a file that exists is not overwritten. Raises CommandError."""
    with new_file(path) as file:
        file.write(content)


@contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """A file for the owner's eyes, or standard output; one that exists is not opened. Raises CommandError."""
    if path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
        with os.fdopen(handle, "wb") as file:
            yield file
    except FileExistsError as exc:
        raise CommandError(f"{path} exists already") from exc
    except OSError as exc:
        raise CommandError(f"{path} cannot be written: {exc.strerror}") from exc


def add_repair(parser: ArgumentParser) -> None:
    """The options of a command that sends a repaired message."""
    parser.add_argument("--body", metavar="FILE", help='send the bytes of this file as the body; "-": stdin')
    parser.add_argument("--content-type", help="of the repaired body; by default as it was")
    parser.add_argument("--content-encoding", help="of the repaired body; by default as it was")
    parser.add_argument(
        "--message",
        metavar="FILE",
        help="send the headers and the content type of this file (see dlq_export)",
    )


def repair_of(options: Mapping[str, Any]) -> Repair | None:
    """The repair that a command was given. Raises CommandError."""
    names = ("body", "content_type", "content_encoding", "message")
    if all(options[name] is None for name in names):
        return None
    about = {} if options["message"] is None else _message(options["message"])
    return Repair(
        body=None if options["body"] is None else _read(options["body"]),
        content_type=options["content_type"] or about.get("content_type"),
        content_encoding=options["content_encoding"] or about.get("content_encoding"),
        headers=about.get("headers"),
    )


def _message(path: str) -> dict[str, Any]:
    try:
        found = json.loads(_read(path))
    except (ValueError, RecursionError) as exc:
        raise CommandError(f"{path} is no JSON: {exc}") from exc
    if not isinstance(found, dict) or not isinstance(found.get("headers", {}), dict):
        raise CommandError(f'{path} holds no message: {{"headers": {{...}}, "content_type": "..."}}')
    for name in ("content_type", "content_encoding"):
        if not isinstance(found.get(name), (str, type(None))):
            raise CommandError(f"{path}: {name} is no text")
    return found


def _read(path: str) -> bytes:
    if path == STANDARD:
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise CommandError(f"{path} cannot be read: {exc.strerror}") from exc
