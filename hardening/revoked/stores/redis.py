"""RedisRevoked: revokes in the Redis of the shared state.

Two sorted sets with the same members, a revoke with a sign before it: "+" revoked, "-" forgotten. One is in
the order of when it was said, one in the order of when it expires. Each call is a script, so a process
that dies has written all of it or nothing; a call that is sent twice says the same thing again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from celery import Celery
from redis import Redis

from hardening.revoked.rules import Revoke
from hardening.revoked.store import Changes, Mark
from hardening.stores.link import OnRedis

__all__ = ["RedisRevoked"]

_AT_ONCE = 1000
"""Revokes in one script: Redis does nothing else while it runs."""

_HEAD = """
local at, till = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function drop(member)
    redis.call('ZREM', till, member)
    return redis.call('ZREM', at, member)
end
local function say(member)
    redis.call('ZADD', at, now, member)
    redis.call('ZADD', till, now + ARGV[1], member)
end
local function keep()
    for _, key in ipairs(KEYS) do
        if redis.call('PTTL', key) < tonumber(ARGV[1]) then redis.call('PEXPIRE', key, ARGV[1]) end
    end
end
"""
_ADD = (
    _HEAD
    + """
for i = 3, #ARGV do
    drop('-' .. ARGV[i])
    say('+' .. ARGV[i])
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', till, '-inf', now)) do drop(member) end
local dropped = 0
local excess = redis.call('ZCARD', till) - ARGV[2]
if excess > 0 then
    for _, member in ipairs(redis.call('ZRANGE', till, 0, excess - 1)) do
        drop(member)
        if string.sub(member, 1, 1) == '+' then dropped = dropped + 1 end
    end
end
keep()
return dropped
"""
)
_FORGET = (
    _HEAD
    + """
local were = {}
for i = 2, #ARGV do
    local score = redis.call('ZSCORE', till, '+' .. ARGV[i])
    if score and tonumber(score) > now then were[#were + 1] = ARGV[i] end
    drop('+' .. ARGV[i])
    say('-' .. ARGV[i])
end
keep()
return were
"""
)
_CHANGES = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] == '' then
    local at = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
    return {now, at, redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf', 'WITHSCORES')}
end
local at = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], '+inf', 'WITHSCORES')
local till = {}
for i = 1, #at, 2 do
    local score = redis.call('ZSCORE', KEYS[2], at[i])
    if score and tonumber(score) > now then
        till[#till + 1] = at[i]
        till[#till + 1] = score
    end
end
return {now, at, till}
"""


class RedisRevoked(OnRedis["_Link"]):
    """Revokes in Redis. Times are kept in milliseconds."""

    keeps = "what is revoked"

    def __init__(
        self, app: Celery | None = None, url: str | None = None, prefix: str = "hardening:revoked:"
    ) -> None:
        """`url` as redis-py takes it; without one the broker of `app`, which defaults to the project's.

        Keys begin with the `global_keyprefix` of the broker, if it has one, and `prefix`.
        """
        super().__init__(app, url)
        self._prefix = prefix

    def add(self, revokes: Sequence[Revoke], *, ttl_seconds: float, most: int) -> int:
        """One round trip for each thousand."""
        arguments = (_ms(ttl_seconds), most)
        return sum(int(self._run("add", *arguments, *texts)) for texts in _parts(revokes))

    def forget(self, revokes: Sequence[Revoke], *, ttl_seconds: float) -> tuple[Revoke, ...]:
        """One round trip for each thousand."""
        were: set[str] = set()
        for texts in _parts(revokes):
            were |= {text.decode() for text in self._run("forget", _ms(ttl_seconds), *texts)}
        return tuple(revoke for revoke in revokes if revoke.text in were)

    def changes(self, since: float | None = None) -> Changes:
        """One round trip."""
        now, at, till = self._run("changes", "" if since is None else int(since * 1000))
        until = dict(_pairs(till))
        revoked, forgotten = [], []
        for member, said in _pairs(at):
            revoke = Revoke.read(member[1:].decode())
            if revoke is None or member not in until:
                continue
            if member[:1] == b"+":
                revoked.append(Mark(revoke, said, until[member]))
            else:
                forgotten.append(revoke)
        return Changes(int(now) / 1000, tuple(revoked), tuple(forgotten))

    def _run(self, name: str, *arguments: Any) -> Any:
        return self._ask(lambda link: link.run(name, arguments))

    def _make_link(self, client: Redis, global_prefix: str) -> _Link:
        return _Link(client, f"{global_prefix}{self._prefix}")


class _Link:
    """A pool of connections, and the scripts."""

    def __init__(self, client: Redis, prefix: str) -> None:
        self._client = client
        self._keys = (f"{prefix}at", f"{prefix}until")
        scripts = {"add": _ADD, "forget": _FORGET, "changes": _CHANGES}
        self._scripts = {name: client.register_script(text) for name, text in scripts.items()}

    def run(self, name: str, arguments: tuple[Any, ...]) -> Any:
        return self._scripts[name](keys=self._keys, args=arguments)

    def close(self) -> None:
        # Those in use by other threads end with their commands.
        self._client.connection_pool.disconnect(inuse_connections=False)


def _parts(revokes: Sequence[Revoke]) -> Iterator[list[str]]:
    for start in range(0, len(revokes), _AT_ONCE):
        yield [revoke.text for revoke in revokes[start : start + _AT_ONCE]]


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, float]]:
    found: Iterator[Any] = iter(flat)
    for member in found:
        yield member, float(next(found)) / 1000


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
