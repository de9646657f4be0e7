"""The scripts that change what is leased. Each is one step for Redis: a process that dies has done it or not.

Keys of a script: the index (delivery tag -> when its lease runs out, by the server's clock), the messages
(tag -> where it came from and who holds it, a line feed, the message as its producer wrote it), and the
returned ones (tag -> when it was given to others), so that a holder can tell that from lost data.

Redis that is full refuses a script that would write more before it changes anything.
"""

from __future__ import annotations

__all__ = ["ADOPT", "EXPIRED", "GIVE_BACK", "HOLD", "RENEW", "RESTORE", "SETTLE", "SET_ASIDE", "TAKE"]

_NOW = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
"""

TAKE = (
    _NOW
    + """
for i = 3, #KEYS do
    local message = redis.call('LINDEX', KEYS[i], -1)
    if message then
        redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
        redis.call('HSET', KEYS[2], ARGV[1], cjson.encode({KEYS[i], ARGV[3]}) .. '\\n' .. message)
        redis.call('RPOP', KEYS[i])
        return {KEYS[i], message}
    end
end
return false
"""
)
"""KEYS: index, messages, lists in their order. ARGV: tag, lease, holder. The next message, leased."""

HOLD = (
    _NOW
    + """
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return 1
"""
)
"""KEYS: index, messages. ARGV: tag, lease, the entry. For a message that left its list by other means."""

RENEW = (
    _NOW
    + """
local lost, vanished = {}, {}
for i = 2, #ARGV do
    if redis.call('ZSCORE', KEYS[1], ARGV[i]) and redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1 then
        redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[i])
    elseif redis.call('ZSCORE', KEYS[3], ARGV[i]) then
        lost[#lost + 1] = ARGV[i]
    else
        vanished[#vanished + 1] = ARGV[i]
    end
end
return {lost, vanished}
"""
)
"""KEYS: index, messages, returned. ARGV: lease, tags. The tags that were given to others, and those of
which Redis knows nothing."""

SETTLE = """
redis.call('ZREM', KEYS[1], ARGV[1])
if redis.call('HDEL', KEYS[2], ARGV[1]) == 1 then return 1 end
if redis.call('ZSCORE', KEYS[3], ARGV[1]) then return -1 end
return 0
"""
"""KEYS: index, messages, returned. ARGV: tag. -1: it was given to others. 0: it is gone, settled before."""

_NOTE_RETURN = """
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[3], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - ARGV[3])
return 1
"""

GIVE_BACK = (
    _NOW
    + """
if redis.call('ZSCORE', KEYS[3], ARGV[1]) then return 0 end
redis.call(ARGV[4], KEYS[4], ARGV[2])
"""
    + _NOTE_RETURN
)
"""KEYS: index, messages, returned, the list. ARGV: tag, message, how long returned tags are remembered, RPUSH
(next to be taken) or LPUSH (last). For its holder, who has it from memory if Redis lost it. 0: it went back
before, by another's hand or by this one, whose answer was lost."""

EXPIRED = (
    _NOW
    + """
local swept = tonumber(redis.call('HGET', KEYS[3], 'at') or 0)
local quiet = tonumber(redis.call('HGET', KEYS[3], 'quiet') or 0)
if swept > now then
    for _, tag in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], now + ARGV[4], '+inf')) do
        redis.call('ZADD', KEYS[1], now + ARGV[4], tag)
    end
end
if now - swept > tonumber(ARGV[2]) or quiet - now > tonumber(ARGV[3]) then quiet = now + ARGV[3] end
redis.call('HSET', KEYS[3], 'at', now, 'quiet', quiet)
if now < quiet then return {} end
local found = {}
for _, tag in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])) do
    local entry = redis.call('HGET', KEYS[2], tag)
    if entry then
        found[#found + 1] = {tag, entry}
    else
        redis.call('ZREM', KEYS[1], tag)
    end
end
return found
"""
)
"""KEYS: index, messages, sweeps. ARGV: how many, the longest pause between two sweeps, how long to be quiet
after a longer one, the lease. Tags and entries of leases that ran out.

After a pause (Redis was away, or full, or its clock went forward) the living could not renew either: they
have time to, before anything is found. Where its clock went back, leases end no later than they would."""

RESTORE = (
    _NOW
    + """
local until_ = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not until_ or tonumber(until_) > now or redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return 0 end
local swept = tonumber(redis.call('HGET', KEYS[5], 'at') or 0)
local quiet = tonumber(redis.call('HGET', KEYS[5], 'quiet') or 0)
if now < quiet or now - swept > tonumber(ARGV[4]) then return 0 end
redis.call('RPUSH', KEYS[4], ARGV[2])
"""
    + _NOTE_RETURN
)
"""KEYS: index, messages, returned, the list, sweeps. ARGV: tag, message, how long returned tags are
remembered, the longest pause between two sweeps. 0: its holder was faster, or another worker, or Redis was
away since it was found."""

ADOPT = (
    _NOW
    + """
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return 0 end
return redis.call('ZADD', KEYS[1], 'NX', now + ARGV[2], ARGV[1])
"""
)
"""KEYS: index, messages. ARGV: tag, lease. For a message that no index knows: it is waited for once more."""

SET_ASIDE = """
redis.call('LPUSH', KEYS[3], ARGV[2])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
"""
"""KEYS: index, messages, garbage. ARGV: tag, entry. A refused push is an error that leaves the rest undone: a
transaction would go on."""
