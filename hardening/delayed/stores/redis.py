"""RedisDelayedStore: delayed messages in the Redis that is the broker, moved into their lists by one script.

Keys, each behind the global key prefix and our own: `due` orders members, a number of parking and an id, by
due time; `facts` and `messages` hold what is behind an id; `tasks` finds the ids of a task id; `released`
and `cancelled` remember what is gone, and `records` says of what was cancelled who did it.

Parking, releasing and cancelling are a script each. A script that a full Redis refuses has changed
nothing: what needs memory comes first in it, and Redis decides before that whether it may. A script that
lost its answer is sent once more: parking finds the message there, releasing goes on with the next ones,
and cancelling finds its own record.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from celery import Celery
from redis import Redis

from hardening.delayed.entry import Cancelled, Delayed, Fate
from hardening.delayed.store import (
    CANCELLED_SECONDS,
    MOST_RECORDS,
    POSTPONED_SECONDS,
    RELEASED_SECONDS,
    Publish,
    Turn,
)
from hardening.stores.link import OnRedis

__all__ = ["RedisDelayedStore"]

_KEYS = ("due", "facts", "messages", "tasks", "released", "cancelled", "records", "number")
_MOST_FOUND = 100

_HEAD = """
local due, facts, messages, tasks, released, cancelled, records, number = unpack(KEYS)
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local function fate(id)
    if redis.call('HEXISTS', facts, id) == 1 then return 'parked' end
    local at = redis.call('ZSCORE', released, id)
    if at and now - at < tonumber(ARGV[1]) then return 'released' end
    at = redis.call('ZSCORE', cancelled, id)
    if at and now - at < tonumber(ARGV[2]) then return 'cancelled' end
    return 'unknown'
end
"""
_PARK = f"""{_HEAD}
local id, task_id, at = ARGV[3], ARGV[4], tonumber(ARGV[5])
local list_key, fact, message = ARGV[6], ARGV[7], ARGV[8]
local known = fate(id)
if known ~= 'unknown' then return known end
if at <= now then return 'due' end
local member = string.format('%014d', redis.call('INCR', number)) .. id
redis.call('HSET', messages, id, message)
redis.call('HSET', facts, id, cjson.encode({{member, list_key, string.format('%.6f', now), task_id, fact}}))
redis.call('ZADD', tasks, 0, task_id .. '\\0' .. id)
redis.call('ZADD', due, at, member)
return 'parked'
"""
_FATE = f"""{_HEAD}
return fate(ARGV[3])
"""
_RELEASE = f"""{_HEAD}
local limit, prefix, later, most = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local found = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, limit)
local moved, postponed = 0, 0
for _, member in ipairs(found) do
    local id = string.sub(member, 15)
    local fact = redis.call('HGET', facts, id)
    local message = redis.call('HGET', messages, id)
    if fact and message then
        fact = cjson.decode(fact)
        local answer = redis.pcall('LPUSH', prefix .. fact[2], message)
        if type(answer) == 'table' and answer.err then
            if string.find(answer.err, 'OOM', 1, true) then return redis.error_reply(answer.err) end
            redis.call('ZADD', due, now + later, member)
            postponed = postponed + 1
        else
            redis.call('ZADD', released, now, id)
            redis.call('ZREM', due, member)
            redis.call('HDEL', facts, id)
            redis.call('HDEL', messages, id)
            redis.call('ZREM', tasks, fact[4] .. '\\0' .. id)
            moved = moved + 1
        end
    else
        redis.call('ZREM', due, member)
    end
end
if moved > 0 then
    redis.call('ZREMRANGEBYSCORE', released, '-inf', now - ARGV[1])
    redis.call('ZREMRANGEBYRANK', released, 0, -most - 1)
end
local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
if first[2] then return {{moved, postponed, string.format('%.6f', first[2] - now)}} end
return {{moved, postponed}}
"""
_CANCEL = f"""{_HEAD}
local id, token, by, most = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local fact = redis.call('HGET', facts, id)
if not fact then
    local record = redis.call('HGET', records, id)
    if record and cjson.decode(record)[2] == token then return {{cjson.decode(record)[4], record}} end
    return {{}}
end
local message = redis.call('HGET', messages, id) or ''
local decoded = cjson.decode(fact)
local record = cjson.encode({{string.format('%.6f', now), token, by, fact}})
local when = redis.call('ZSCORE', due, decoded[1]) or '0'
redis.call('ZREM', due, decoded[1])
redis.call('HDEL', facts, id)
redis.call('HDEL', messages, id)
redis.call('ZREM', tasks, decoded[4] .. '\\0' .. id)
redis.call('HSET', records, id, record)
redis.call('ZADD', cancelled, now, id)
local old = redis.call('ZRANGEBYSCORE', cancelled, '-inf', now - ARGV[2], 'LIMIT', 0, 100)
local over = redis.call('ZCARD', cancelled) - most
if over > 0 then
    local first = redis.call('ZRANGE', cancelled, 0, math.min(over, 100) - 1)
    for _, each in ipairs(first) do old[#old + 1] = each end
end
for _, each in ipairs(old) do
    redis.call('ZREM', cancelled, each)
    redis.call('HDEL', records, each)
end
return {{fact, record, message}}
"""


class RedisDelayedStore(OnRedis["_Link"]):
    """Delayed messages of the app whose broker this Redis is. Nothing of them is in a worker."""

    keeps = "the delayed tasks"
    remedy = 'name another store in HARDENING["DELAYED"]["STORE"]'

    def __init__(self, app: Celery | None = None, prefix: str = "hardening:delayed:") -> None:
        super().__init__(app, None)
        self._prefix = prefix

    def begin(self) -> None:
        """Nothing changes."""

    def pause(self) -> None:
        """Nothing changes: its pool stays open."""

    def park(self, entry: Delayed) -> Fate:
        """Keep a message, in one round trip."""
        fact = json.dumps([entry.task, entry.queue, entry.attempt, entry.due])
        arguments = (entry.id, entry.task_id, repr(entry.due), entry.list_key, fact, entry.message)
        return Fate(self._ask(lambda link: link.park(*arguments)).decode())

    def fate(self, entry_id: str) -> Fate:
        """What became of a message, in one round trip."""
        return Fate(self._ask(lambda link: link.fate(entry_id)).decode())

    def release(self, publish: Publish, *, limit: int) -> Turn:
        """Move what is due into its lists, in one round trip."""
        moved, postponed, *left = self._ask(lambda link: link.release(limit))
        return Turn(released=moved, postponed=postponed, next_in=max(0.0, float(left[0])) if left else None)

    def cancel(self, entry_id: str, *, by: str) -> tuple[Delayed, Cancelled] | None:
        """Take a message off, in one round trip."""
        token = secrets.token_hex(8)
        fact, *more = self._ask(lambda link: link.cancel(entry_id, token, by)) or (None,)
        if fact is None:
            return None
        return _entry(entry_id, fact, *more[1:]), _record(entry_id, more[0])

    def count(self) -> int:
        """How many are parked."""
        return int(self._ask(lambda link: link.client.zcard(link.keys[0])))

    def page(self, *, offset: int, limit: int) -> list[Delayed]:
        """Some of them, by their place in the order."""
        ids = self._ask(lambda link: link.ids(offset, limit))
        return self._entries(ids)

    def find(self, key: str) -> list[Delayed]:
        """Those of a task id, or the one of an own id."""
        ids = self._ask(lambda link: link.of_task(key))
        return self._entries(ids) or self._entries([key.encode("utf-8", "surrogatepass")])

    def cancellations(self, *, limit: int) -> list[Cancelled]:
        """The latest first."""
        found = self._ask(lambda link: link.latest_records(limit))
        return [_record(entry_id.decode(), record) for entry_id, record in found if record]

    def _entries(self, ids: list[bytes]) -> list[Delayed]:
        if not ids:
            return []
        found = self._ask(lambda link: link.client.hmget(link.keys[1], ids))
        return [
            _entry(each.decode(), fact)
            for each, fact in zip(ids, found, strict=True)
            if fact is not None  # Released meanwhile.
        ]

    def _make_link(self, client: Redis, global_prefix: str) -> _Link:
        return _Link(client, global_prefix, self._prefix)


class _Link:
    """A pool of connections, and the scripts."""

    def __init__(self, client: Redis, global_prefix: str, prefix: str) -> None:
        self.client: Any = client
        self._global_prefix = global_prefix
        self.keys = [f"{global_prefix}{prefix}{name}" for name in _KEYS]
        self._park = client.register_script(_PARK)
        self._fate = client.register_script(_FATE)
        self._release = client.register_script(_RELEASE)
        self._cancel = client.register_script(_CANCEL)

    def park(self, *arguments: Any) -> Any:
        return self._run(self._park, *arguments)

    def fate(self, entry_id: str) -> Any:
        return self._run(self._fate, entry_id)

    def release(self, limit: int) -> Any:
        return self._run(self._release, limit, self._global_prefix, POSTPONED_SECONDS, MOST_RECORDS)

    def cancel(self, entry_id: str, token: str, by: str) -> Any:
        return self._run(self._cancel, entry_id, token, by, MOST_RECORDS)

    def ids(self, offset: int, limit: int) -> list[bytes]:
        return [member[14:] for member in self.client.zrange(self.keys[0], offset, offset + limit - 1)]

    def of_task(self, task_id: str) -> list[bytes]:
        begin = _text(task_id) + b"\x00"
        found = self.client.zrangebylex(
            self.keys[3], b"[" + begin, b"[" + begin + b"\xff", start=0, num=_MOST_FOUND
        )
        return [member[len(begin) :] for member in found]

    def latest_records(self, limit: int) -> list[tuple[bytes, bytes | None]]:
        ids = self.client.zrevrange(self.keys[5], 0, limit - 1)
        return list(zip(ids, self.client.hmget(self.keys[6], ids), strict=True)) if ids else []

    def close(self) -> None:
        # Those in use by other threads end with their commands.
        self.client.connection_pool.disconnect(inuse_connections=False)

    def _run(self, script: Any, *arguments: Any) -> Any:
        spans = (RELEASED_SECONDS, CANCELLED_SECONDS)
        return script(keys=self.keys, args=[*spans, *(_text(each) for each in arguments)])


def _text(value: Any) -> Any:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _entry(entry_id: str, fact: bytes | str, message: bytes = b"") -> Delayed:
    _member, list_key, parked_at, task_id, rest = json.loads(fact)
    task, queue, attempt, due = json.loads(rest)
    return Delayed(
        id=entry_id,
        task_id=task_id,
        task=task,
        queue=queue,
        due=float(due),
        attempt=int(attempt),
        parked_at=float(parked_at),
        list_key=list_key,
        message=message.decode("utf-8", "surrogatepass"),
    )


def _record(entry_id: str, record: bytes) -> Cancelled:
    at, _token, by, fact = json.loads(record)
    entry = _entry(entry_id, fact)
    return Cancelled(
        id=entry_id,
        task_id=entry.task_id,
        task=entry.task,
        queue=entry.queue,
        due=entry.due,
        at=float(at),
        by=by,
    )
