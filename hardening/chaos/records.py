"""The run's own record: publishes tried and confirmed, faults done; and a reader of the witness."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from .facts import Hit, Mark, Published
from .malformed import NAMELESS
from .plan import Item, Kind

__all__ = ["Journal", "Witnessed", "published_of"]


class Journal:
    """What the publisher did, by key: recorded before a publish and after it."""

    def __init__(self, path: Path) -> None:
        self._lines = path.open("a", buffering=1)
        self._lock = Lock()
        self.tries: dict[str, int] = {}
        self.confirmed: set[str] = set()
        self.spans: dict[str, tuple[float, float]] = {}
        self.kinds: dict[str, str] = {}
        """Of a user's own tasks: their names."""

    def intend(self, *keys: str, kind: str = "") -> None:
        """About to publish."""
        self._note("publish", keys)
        with self._lock:
            for key in keys:
                self.tries[key] = self.tries.get(key, 0) + 1
                self.spans.setdefault(key, (time.time(), 0.0))
                if kind:
                    self.kinds.setdefault(key, kind)

    def confirm(self, *keys: str) -> None:
        """The broker has them."""
        with self._lock:
            self.confirmed.update(keys)
            self.spans.update({key: (self.spans[key][0], time.time()) for key in keys if key in self.spans})
        self._note("published", keys)

    def revoke(self, key: str) -> None:
        """A revoke was sent."""
        self._note("revoked", (key,))

    def close(self) -> None:
        """Nothing more is written."""
        self._lines.close()

    def _note(self, what: str, keys: tuple[str, ...]) -> None:
        line = json.dumps({"what": what, "keys": keys, "at": round(time.time(), 4)})
        with self._lock:
            self._lines.write(f"{line}\n")


class Witnessed:
    """Reads the witness as it grows."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""
        self.marks: list[Mark] = []
        self.ended: set[str] = set()
        self.started: set[str] = set()
        self.busy: dict[int, str] = {}
        """Process -> what it seems to be running."""

        self.ready: set[int] = set()
        """Main processes of workers that said that they take messages."""

        self.sent: dict[str, bool] = {}
        """What workers published of a user's tasks: key -> whether it was confirmed."""

        self.names: dict[str, str] = {}

    def look(self) -> int:
        """Read what is new; returns how many lines."""
        lines = (self._rest + self._file.read()).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._take(json.loads(line))
        return len(lines)

    def close(self) -> None:
        """Nothing more is read."""
        self._file.close()

    def _take(self, fact: Mapping[str, Any]) -> None:
        what, key, pid = fact["what"], fact["key"], fact["pid"]
        match what:
            case "start" | "end":
                (self.started if what == "start" else self.ended).add(key)
                if what == "start":
                    self.busy[pid] = key
                else:
                    self.busy.pop(pid, None)
                self.names.setdefault(key, fact.get("task", ""))
                self.marks.append(
                    Mark(
                        what=what,
                        key=key,
                        at=fact["at"],
                        pid=pid,
                        parent=fact["parent"],
                        attempt=fact.get("attempt", 0),
                        worker=fact.get("worker", ""),
                    )
                )
            case "publish":
                self.sent.setdefault(key, False)
                self.names.setdefault(key, fact.get("task", ""))
            case "published":
                self.sent[key] = True
            case "ready":
                self.ready.add(pid)


def published_of(items: tuple[Item, ...], journal: Journal, witnessed: Witnessed) -> list[Published]:
    """What was to be published, those that lead to others before them."""
    return [*_of_the_kit(items, journal), *_of_the_user(journal, witnessed)]


def _of_the_kit(items: tuple[Item, ...], journal: Journal) -> Iterator[Published]:
    for item in items:
        if item.keys[0] not in journal.tries:
            continue
        for place, key in enumerate(item.keys):
            after: tuple[str, ...] = ()
            if item.kind is Kind.CHAIN and place:
                after = (item.keys[place - 1],)
            elif item.kind is Kind.CHORD and place == len(item.keys) - 1:
                after = item.keys[:-1]
            yield Published(
                key=key,
                kind=item.kind.value,
                confirmed=key in journal.confirmed,
                tries=journal.tries.get(key, 1),
                span=journal.spans.get(key, (0.0, 0.0)),
                after=after,
                answers=item.details.get("malformation") not in NAMELESS,
            )


def _of_the_user(journal: Journal, witnessed: Witnessed) -> Iterator[Published]:
    for key, name in journal.kinds.items():
        yield Published(
            key=key,
            kind=name,
            confirmed=key in journal.confirmed,
            tries=journal.tries.get(key, 1),
            span=journal.spans.get(key, (0.0, 0.0)),
        )
    for key, confirmed in witnessed.sent.items():
        if key not in journal.kinds:
            yield Published(key=key, kind=witnessed.names.get(key) or "?", confirmed=confirmed)


def hit_as_line(hit: Hit) -> str:
    """For the file of faults."""
    return json.dumps(
        {
            "fault": hit.name,
            "at": round(hit.at, 3),
            "until": round(hit.until, 3),
            "pids": sorted(hit.pids) if hit.pids is not None else None,
            "note": hit.note,
        }
    )
