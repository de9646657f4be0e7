"""Takes letters of JSON lines into this store: each once, however often the file is read, and over none that
is here.

A letter keeps its id, so that the same line is the same letter. Everything else that a key decides is made
anew with the keys of this environment: the digest of its body, its place at rest, the task id of its replay.
A constraint that refuses one says that its work is here already; it is left out and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import BinaryIO
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, IntegrityError, InterfaceError, OperationalError, transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from hardening.core.letter import load_letter

from ..conf import database_alias, dlq_settings
from ..errors import CannotSeal
from ..inserting import insert
from ..models import NAME_LENGTH, Attempt, DeadLetter
from ..rows import attempt_rows, letter_row
from ..states import CLOSED, State
from ..text import clean, clip, fit_integer
from .lines import VERSION

__all__ = ["LONGEST_LINE", "BadLine", "Imported", "import_lines", "lines_of"]

LONGEST_LINE = 64 * 1024 * 1024
_BATCH = 200
_MOST_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that is left out, counted from 1, and why."""

    number: int
    why: str


@dataclass(slots=True, kw_only=True)
class Imported:
    """`known`: they, or letters of the same work, are here already. `bad` holds the first of `bad_lines`."""

    imported: int = 0
    known: int = 0
    bad_lines: int = 0
    bad: list[BadLine] = field(default_factory=list)
    dry_run: bool = False

    def note_bad(self, number: int, why: str) -> None:
        """Leave a line out."""
        self.bad_lines += 1
        if len(self.bad) < _MOST_SHOWN:
            self.bad.append(BadLine(number=number, why=why))

    def as_dict(self) -> dict[str, object]:
        """Plain form for --json."""
        return {
            "imported": self.imported,
            "known": self.known,
            "bad_lines": self.bad_lines,
            "bad": [{"line": each.number, "why": each.why} for each in self.bad],
            "dry_run": self.dry_run,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    number: int
    row: DeadLetter
    attempts: Sequence[Attempt]


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file. One that is too long is cut: it is bad, and the others keep their numbers."""
    while line := file.readline(LONGEST_LINE + 1):
        part = line
        while len(part) > LONGEST_LINE and not part.endswith(b"\n"):
            part = file.readline(LONGEST_LINE + 1)
        yield line


def import_lines(
    lines: Iterable[bytes],
    *,
    origin: str,
    dry_run: bool = False,
    on_batch: Callable[[Imported], object] = lambda _done: None,
) -> Imported:
    """Store every letter of these lines that is not here yet; `origin` is noted with each.

    An open letter comes as open, one that was being replayed too; a closed one comes closed, as it was.
    Raises CannotSeal, and what a database raises that is away: what was stored by then is, and the file may
    be read again.
    """
    done = Imported(dry_run=dry_run)
    numbered = enumerate(lines, start=1)
    while batch := list(islice(numbered, _BATCH)):
        entries: dict[UUID, _Entry] = {}
        for number, line in batch:
            if not line.strip():
                continue
            try:
                entry = _entry(number, line, origin)
            except CannotSeal:
                raise
            # Whatever it is, it is this line's fault: files come from anywhere.
            except Exception as exc:
                done.note_bad(number, _why(exc))
                continue
            if entry.row.pk in entries:
                done.known += 1
            entries.setdefault(entry.row.pk, entry)
        _store(list(entries.values()), done)
        on_batch(done)
    return done


def _entry(number: int, line: bytes, origin: str) -> _Entry:
    if len(line) > LONGEST_LINE:
        raise ValueError(f"it is longer than {LONGEST_LINE} bytes")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(found, dict) or found.get("v") != VERSION:
        raise ValueError(f"it is no letter of version {VERSION}")
    if "letter" not in found:
        raise ValueError("it has no message: export with --whole")
    record = load_letter(json.dumps(found["letter"]))
    parts: tuple[object, ...] = (record.payload.headers, record.payload.properties)
    if not all(isinstance(part, Mapping) for part in parts):
        raise ValueError("the headers or the properties of its message are none")
    now = timezone.now()
    row = letter_row(record, keys=dlq_settings().encryption_keys, now=now)
    row.pk = UUID(str(found["id"]))
    row.occurrence = max(1, fit_integer(found.get("occurrence")))
    row.captures = max(1, fit_integer(found.get("captures")))
    row.imported_from = clip(origin, NAME_LENGTH)
    state = State(found["state"])
    if state in CLOSED:
        row.state = state.value
        row.closed_at = _moment(found.get("closed_at")) or now
        row.replayed_at = _moment(found.get("replayed_at"))
        row.closed_by = clip(found.get("closed_by"), NAME_LENGTH)
        row.discard_reason = clean(str(found.get("discard_reason") or ""))
    return _Entry(number=number, row=row, attempts=attempt_rows(record.attempts, letter_id=row.pk))


def _store(entries: Sequence[_Entry], done: Imported) -> None:
    alias = database_alias()
    new = _unknown(entries, alias)
    done.known += len(entries) - len(new)
    if done.dry_run:
        done.imported += len(new)
        return
    try:
        with transaction.atomic(using=alias):
            for entry in new:
                insert(entry.row, entry.attempts, alias=alias)
        done.imported += len(new)
    except (OperationalError, InterfaceError):
        raise
    except DatabaseError:
        # One of them is refused: which one is known when each is alone.
        for entry in new:
            _store_one(entry, done, alias)


def _store_one(entry: _Entry, done: Imported, alias: str) -> None:
    try:
        with transaction.atomic(using=alias):
            insert(entry.row, entry.attempts, alias=alias)
    except IntegrityError:
        done.known += 1
    except (OperationalError, InterfaceError):
        raise
    except DatabaseError as exc:
        # Not its text, which may quote what was to be stored.
        done.note_bad(entry.number, f"the database refuses it ({type(exc).__name__})")
    else:
        done.imported += 1


def _unknown(entries: Sequence[_Entry], alias: str) -> list[_Entry]:
    """Those that no constraint will refuse, as things are."""
    letters = DeadLetter.objects.using(alias)
    pks = set(letters.filter(pk__in=[e.row.pk for e in entries]).order_by().values_list("pk", flat=True))
    digests = [entry.row.body_digest for entry in entries]
    same = letters.filter(body_digest__in=digests).order_by()
    numbers = set(same.values_list("body_digest", "occurrence"))
    live = set(same.live().values_list("body_digest", flat=True))
    found = []
    for entry in entries:
        row = entry.row
        is_live = row.state == State.OPEN
        key = (row.body_digest, row.occurrence)
        if row.pk in pks or key in numbers or (is_live and row.body_digest in live):
            continue
        numbers.add(key)
        if is_live:
            live.add(row.body_digest)
        found.append(entry)
    return found


def _moment(value: object) -> datetime | None:
    found = parse_datetime(value) if isinstance(value, str) else None
    if found is None or not 1001 <= found.year <= 9998:
        return None
    if settings.USE_TZ:
        return found if timezone.is_aware(found) else timezone.make_aware(found)
    return timezone.make_naive(found) if timezone.is_aware(found) else found


def _why(exc: Exception) -> str:
    # Our own words, and those of the wire form; of others the kind alone: texts may quote what is in the
    # line.
    if isinstance(exc, KeyError):
        return f"it has no {exc.args[0]}"
    return clean(str(exc))[:200] if isinstance(exc, ValueError) else type(exc).__name__
