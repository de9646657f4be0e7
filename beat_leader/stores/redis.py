"""Ticks and Register in Redis: the broker's, or another one. Each step is one script, see `scripts`.

A script whose answer was lost is sent once more over a new connection: each may be done twice. What it rests
on: Redis keeps what it was told. One without an append-only file forgets the last decisions when it is
killed, and a leader of that moment goes on from what it knows itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar
from uuid import UUID

from redis import ResponseError

from beat_leader.on_redis import OnBeatsRedis, Scripts
from beat_leader.register import Role, Sign, TermRecord
from beat_leader.ticks import (
    Cursor,
    Decision,
    OldEpoch,
    Outcome,
    State,
    Tick,
    TicksUnavailable,
    task_id_for,
)

from .scripts import ROW, SCRIPTS

__all__ = ["Register", "Ticks"]

T = TypeVar("T")

_MOST_LATE = 100
_MOST_UNFINISHED = 100_000
_BATCH = 500
_REFUSED = "OLDEPOCH"
_NUMBERS = {each for each in ROW.values() if each.endswith("_ms")} | {"epoch", "count"}


class _Stored(OnBeatsRedis):
    keeps = "the ticks of Beat"
    remedy = 'set BEAT_LEADER["STORE"] to another store, or give it a url'
    unavailable = TicksUnavailable

    scripts = SCRIPTS

    def _run(self, script: str, *arguments: Any) -> Any:
        return self._ask(lambda link: _run(link, script, arguments))

    def _fenced(self, script: str, epoch: int, *arguments: Any) -> Any:
        def ask(link: Scripts) -> Any:
            try:
                return _run(link, script, (epoch, *arguments))
            except ResponseError as exc:
                said = str(exc).split()
                if _REFUSED not in said:
                    raise
                # Not raised here: the link takes every error of ours for one of the store's.
                return OldEpoch(epoch, int(said[said.index(_REFUSED) + 1]))

        answer = self._ask(ask)
        if isinstance(answer, OldEpoch):
            raise answer
        return answer


def _run(link: Scripts, script: str, arguments: Sequence[Any]) -> Any:
    # The scripts build the rest of their keys themselves.
    return link.run(script, ("",), [_encoded(each) for each in arguments])


class Ticks(_Stored):
    """A TickStore."""

    def open_term(self, epoch: int) -> None:
        self._fenced("open", epoch)

    def newest_epoch(self) -> int:
        return int(self._ask(lambda link: link.client.get(f"{link.prefix}fence")) or 0)

    def cursors(self) -> dict[str, Cursor]:
        found: Mapping[Any, Any] = self._ask(lambda link: link.client.hgetall(f"{link.prefix}cursors"))
        return {each.schedule: each for each in (_cursor(_text(k), _text(v)) for k, v in found.items())}

    def put_cursors(self, epoch: int, cursors: Iterable[Cursor]) -> None:
        for batch in _in_batches(list(cursors)):
            given = [(c.schedule, c.definition, c.anchor_ms, c.decided_ms) for c in batch]
            self._fenced("put", epoch, *(part for each in given for part in each))

    def drop_cursors(self, epoch: int, schedules: Iterable[str]) -> None:
        for batch in _in_batches(list(schedules)):
            self._fenced("drop", epoch, *batch)

    def decide(self, epoch: int, decisions: Sequence[Decision]) -> list[bool]:
        given: list[Any] = []
        for each in decisions:
            given += (_id(each.schedule, each.due_ms), each.schedule, each.due_ms, each.state.value)
            given += (each.why, each.decided_ms, _unless(None, each.first_ms), _unless(1, each.count))
        return [bool(each) for each in self._fenced("decide", epoch, *given)]

    def sent(self, epoch: int, ticks: Sequence[tuple[str, int]], now_ms: int) -> None:
        ids = [_id(*each) for each in ticks]
        self._fenced("settle", epoch, State.SENT.value, "", now_ms, *ids)

    def missed(self, epoch: int, schedule: str, due_ms: int, why: str) -> None:
        self._fenced("settle", epoch, State.MISSED.value, why, "", _id(schedule, due_ms))

    def unfinished(self) -> list[Tick]:
        return _ticks(self._run("unfinished", "+inf", _MOST_UNFINISHED))

    def note(self, task_id: str, outcome: Outcome, at_ms: int, detail: str = "") -> bool:
        try:
            row = UUID(task_id).bytes
        except ValueError:
            return False  # None of ours.
        return bool(self._run("note", row, outcome.value, at_ms, detail))

    def last(self, schedules: Sequence[str] | None = None) -> dict[str, Tick]:
        found: list[Any] = []
        if schedules is None:
            found = self._ask(lambda link: link.client.hvals(f"{link.prefix}last"))
        elif schedules:
            names = [_encoded(each) for each in schedules]
            found = self._ask(lambda link: link.client.hmget(f"{link.prefix}last", names))
        ids = [each for each in found if each is not None]
        rows = [row for batch in _in_batches(ids) for row in _ticks(self._run("by_id", *batch))]
        return {row.schedule: row for row in rows}

    def last_sent(self, schedule: str) -> Tick | None:
        rows = _ticks(self._run("last_sent", schedule))
        return rows[0] if rows else None

    def history(
        self, schedule: str | None = None, *, limit: int = 100, before: tuple[int, str] | None = None
    ) -> list[Tick]:
        after = ("", "") if before is None else (before[0], _id(before[1], before[0]))
        return _ticks(self._run("history", schedule or "", limit, *after))

    def late(self, *, before_ms: int) -> list[Tick]:
        return _ticks(self._run("unfinished", f"({before_ms}", _MOST_LATE))

    def prune(self, *, before_ms: int, most: int, limit: int = 1000) -> int:
        gone = int(self._run("prune_old", before_ms, limit))
        walk, more = self._run("prune_many", self._walk, most, limit)
        self._walk = int(walk)
        return gone + int(more)

    _walk = 0
    """Where the walk over the schedules is."""

    def counts(self, *, since_ms: int) -> Mapping[State, int]:
        others = [state for state in State if state is not State.SENT]
        every, *rest = map(int, self._run("counts", since_ms, *(state.value for state in others)))
        return {**dict(zip(others, rest, strict=True)), State.SENT: every - sum(rest)}


class Register(_Stored):
    """A Register."""

    keeps = "the signs of life of Beat"

    def tell(self, sign: Sign) -> float:
        return float(self._run("tell", sign.holder, json.dumps(asdict(sign))))

    def signs(self) -> list[Sign]:
        def ask(link: Scripts) -> Any:
            with link.client.pipeline() as pipeline:
                pipeline.hgetall(f"{link.prefix}signs")
                pipeline.zrange(f"{link.prefix}alive", 0, -1, withscores=True)
                return pipeline.execute()

        texts, alive = self._ask(ask)
        given = {_text(holder): at for holder, at in alive}
        signs = [_sign(_text(text), given.get(_text(holder), 0.0)) for holder, text in texts.items()]
        return sorted(signs, key=lambda each: (each.role is not Role.LEADER, -each.at))

    def leave(self, holder: str) -> None:
        def ask(link: Scripts) -> Any:
            with link.client.pipeline() as pipeline:
                pipeline.hdel(f"{link.prefix}signs", holder)
                pipeline.zrem(f"{link.prefix}alive", holder)
                return pipeline.execute()

        self._ask(ask)

    def term_began(self, epoch: int, holder: str) -> None:
        self._run("term", epoch, "holder", holder, 1)

    def term_sent(self, epoch: int) -> None:
        self._run("term", epoch, "first", "", 0)

    def term_ended(self, epoch: int, end: str) -> None:
        self._run("term", epoch, "ended", end, 0)

    def terms(self, limit: int = 100) -> list[TermRecord]:
        return [_term(int(epoch), _fields(fields)) for epoch, fields in self._run("terms", limit)]

    def refused(self, epoch: int, holder: str, what: str) -> None:
        self._run("refused", json.dumps([epoch, holder, what]))

    def refusals(self, *, since: float) -> list[tuple[float, int, str, str]]:
        lines = self._ask(lambda link: link.client.lrange(f"{link.prefix}refusals", 0, -1))
        found = []
        for line in lines:
            at, _, told = _text(line).partition(" ")
            epoch, holder, what = json.loads(told)
            found.append((float(at), int(epoch), str(holder), str(what)))
        return [each for each in found if each[0] >= since]

    def ask_to_resign(self, epoch: int, by: str) -> None:
        self._run("term", epoch, "asked", by, 0)

    def asked_to_resign(self, epoch: int) -> str | None:
        found = self._ask(lambda link: link.client.hmget(f"{link.prefix}term:{epoch}", ["asked", "ended"]))
        return _text(found[0]) if found[0] is not None and found[1] is None else None

    def now(self) -> float:
        seconds, micros = self._ask(lambda link: link.client.time())
        return float(seconds) + float(micros) / 1e6


def _in_batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + _BATCH] for start in range(0, len(items), _BATCH))


def _id(schedule: str, due_ms: int) -> bytes:
    return UUID(task_id_for(schedule, due_ms)).bytes


def _encoded(value: Any) -> Any:
    # A name from anywhere: JSON lets through lone surrogates, which UTF-8 does not.
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else str(value)


def _unless(usual: object, value: int | None) -> Any:
    return "" if value == usual else value


def _cursor(schedule: str, text: str) -> Cursor:
    definition, anchor, decided = text.rsplit("|", 2)
    return Cursor(schedule=schedule, definition=definition, anchor_ms=int(anchor), decided_ms=int(decided))


def _fields(flat: Sequence[Any]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _ticks(rows: Iterable[bytes]) -> list[Tick]:
    return [_tick(json.loads(_text(row))) for row in rows]


def _tick(flat: Sequence[str]) -> Tick:
    found: dict[str, Any] = {
        ROW[field]: int(value) if ROW[field] in _NUMBERS else value
        for field, value in zip(flat[::2], flat[1::2], strict=True)
    }
    found["state"] = State(found["state"])
    found["outcome"] = Outcome(found.get("outcome", ""))
    return Tick(task_id=task_id_for(found["schedule"], found["due_ms"]), **found)


def _sign(text: str, at: float) -> Sign:
    found = json.loads(text)
    return replace(Sign(**{**found, "role": Role(found["role"])}), at=at)


def _term(epoch: int, found: Mapping[str, str]) -> TermRecord:
    def moment(name: str) -> float | None:
        return float(found[name]) if found.get(name) else None

    return TermRecord(
        epoch=epoch,
        holder=found.get("holder", ""),
        began=moment("began") or 0.0,
        ended=moment("ended"),
        end=found.get("end", ""),
        first_sent=moment("first"),
    )
