"""RedisLock: the lease is a key that Redis lets run out, its epochs are counted in another that stays.

Each step is one script. One whose answer was lost is sent once more over a new connection: to win twice makes
a later epoch, to renew or to resign twice is the same as once.

What it rests on: Redis judges the end of a lease by its own clock. One that is set forward by more than the
margin ends leases early, and one that forgets its keys lets another win; the tick store refuses the older
epoch then.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from beat_leader.lock import LockUnavailable, Standing
from beat_leader.on_redis import OnBeatsRedis

__all__ = ["RedisLock"]

_STANDING = """
local function standing()
    local now = redis.call('TIME')
    local held = redis.call('HMGET', KEYS[1], 'holder', 'epoch')
    local left = redis.call('PTTL', KEYS[1])
    if not held[1] or left <= 0 then return {'', redis.call('GET', KEYS[2]) or '0', 0, now[1], now[2]} end
    return {held[1], held[2], left, now[1], now[2]}
end
"""
_ACQUIRE = (
    _STANDING
    + """
local held = standing()
if held[1] ~= '' and held[1] ~= ARGV[1] then return held end
local epoch = math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(held[2]), tonumber(ARGV[3])) + 1
redis.call('SET', KEYS[2], string.format('%.0f', epoch))
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'epoch', string.format('%.0f', epoch))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return standing()
"""
)
_RENEW = (
    _STANDING
    + """
local held = standing()
if held[1] == ARGV[1] and held[2] == ARGV[2] then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return standing()
end
return held
"""
)
_RESIGN = (
    _STANDING
    + """
local held = standing()
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then return 0 end
return redis.call('DEL', KEYS[1])
"""
)


_SCRIPTS = {
    "acquire": _ACQUIRE,
    "renew": _RENEW,
    "resign": _RESIGN,
    "look": f"{_STANDING}return standing()",
}
_KEYS = ("lease", "epoch")


class RedisLock(OnBeatsRedis):
    """A leader lock in the Redis that is the broker, or in another one."""

    keeps = "the leader lock of Beat"
    remedy = 'set BEAT_LEADER["LOCK"] to another lock, or give RedisLock a url'
    unavailable = LockUnavailable

    scripts = _SCRIPTS

    def acquire(self, holder: str, *, lease_seconds: float, at_least: int = 0) -> Standing:
        """One script."""
        return _standing(self._run("acquire", holder, _milliseconds(lease_seconds), at_least))

    def renew(self, holder: str, epoch: int, *, lease_seconds: float) -> Standing:
        """One script."""
        return _standing(self._run("renew", holder, epoch, _milliseconds(lease_seconds)))

    def resign(self, holder: str, epoch: int) -> bool:
        """One script."""
        return bool(self._run("resign", holder, epoch))

    def look(self) -> Standing:
        """One script that only reads."""
        return _standing(self._run("look"))

    def _run(self, script: str, *arguments: Any) -> Any:
        return self._ask(lambda link: link.run(script, _KEYS, arguments))


def _standing(answer: Any) -> Standing:
    holder, epoch, left, seconds, micros = answer
    return Standing(
        holder=holder.decode("utf-8") if isinstance(holder, bytes) else str(holder),
        epoch=int(epoch),
        remaining_seconds=int(left) / 1000,
        now=int(seconds) + int(micros) / 1e6,
    )


def _milliseconds(seconds: float) -> int:
    return max(1, ceil(seconds * 1000))
