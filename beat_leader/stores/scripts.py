"""The scripts of the tick store in Redis: each is one step, and looks at the epoch before it writes.

Keys, after the prefix P:
  P fence            the highest epoch that was seen
  P cursors          hash: schedule -> definition|anchor|decided
  P last             hash: schedule -> id of its latest row
  P rows             sorted set of all rows by due time: ids
  P of:SCHEDULE      the same, of one schedule
  P in:STATE         the same, of one state; those that were sent are the rest
  P tick:ID          hash: one row, see ROW
  P signs, P alive   the latest sign of each holder, and when it was given
  P terms, P term:E  the epochs of terms, and what is known of one
  P refusals         list: when, epoch, holder, what

An id is the 16 bytes of the task's id. Rows are many: what they do not have, and what their id tells, is not
in them, and the names of their fields are short.

What is built of the names of schedules is built here, as in no Redis Cluster; kombu's transport knows none.
A script that began to write does not fail in the middle: Redis refuses it for want of memory or of a disk at
its first write, or not at all.
"""

from __future__ import annotations

__all__ = ["ROW", "SCRIPTS"]

ROW = {
    "n": "schedule",
    "d": "due_ms",
    "s": "state",
    "w": "why",
    "e": "epoch",
    "t": "decided_ms",
    "x": "sent_ms",
    "o": "outcome",
    "b": "started_ms",
    "z": "ended_ms",
    "i": "detail",
    "f": "first_ms",
    "c": "count",
}
"""The fields of a row's hash, and what they are called in a Tick."""

_HEAD = """
local P = KEYS[1]
local function call(...) return redis.call(...) end
local function text(number) return string.format('%.0f', number) end
"""
_FENCED = (
    _HEAD
    + """
local epoch = tonumber(ARGV[1])
local newest = tonumber(call('GET', P .. 'fence') or '0')
if epoch < newest then return redis.error_reply('OLDEPOCH ' .. text(newest)) end
if epoch > newest then call('SET', P .. 'fence', text(epoch)) end
"""
)
# JSON, of which a client reads thousands in no time; a row of fields and values in turn.
_ROWS = """
local function rows(ids)
    local found = {}
    for _, id in ipairs(ids) do
        local row = call('HGETALL', P .. 'tick:' .. id)
        if #row > 0 then found[#found + 1] = cjson.encode(row) end
    end
    return found
end
"""
_OPEN = _FENCED + "return 'OK'"

_PUT = (
    _FENCED
    + """
for i = 2, #ARGV, 4 do
    local name, definition, anchor, decided = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local before = call('HGET', P .. 'cursors', name)
    if before then
        local d, a, u = string.match(before, '^(.*)|(-?%d+)|(-?%d+)$')
        if d == definition then
            anchor = a
            if tonumber(u) > tonumber(decided) then decided = u end
        end
    end
    call('HSET', P .. 'cursors', name, definition .. '|' .. anchor .. '|' .. decided)
end
return 'OK'
"""
)
_DROP = (
    _FENCED
    + """
for i = 2, #ARGV do call('HDEL', P .. 'cursors', ARGV[i]) end
return 'OK'
"""
)
# Of each decision: id, schedule, due, state, why, decided, first, count; empty: not so.
_DECIDE = (
    _FENCED
    + """
local done = {}
for i = 2, #ARGV, 8 do
    local id, name, due, state = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local key, ours = P .. 'tick:' .. id, 0
    local there = call('HMGET', key, 'e', 't')
    local cursor = call('HGET', P .. 'cursors', name)
    local definition, anchor, decided
    if cursor then definition, anchor, decided = string.match(cursor, '^(.*)|(-?%d+)|(-?%d+)$') end
    if there[1] then
        if there[1] == text(epoch) and there[2] == ARGV[i + 5] then ours = 1 end
    elseif not (decided and tonumber(due) <= tonumber(decided)) then
        ours = 1
        call('HSET', key, 'n', name, 'd', due, 's', state, 'e', text(epoch), 't', ARGV[i + 5])
        for field, value in pairs({w = ARGV[i + 4], f = ARGV[i + 6], c = ARGV[i + 7]}) do
            if value ~= '' then call('HSET', key, field, value) end
        end
        call('ZADD', P .. 'rows', due, id)
        call('ZADD', P .. 'of:' .. name, due, id)
        if state ~= 'sent' then call('ZADD', P .. 'in:' .. state, due, id) end
        local last = call('HGET', P .. 'last', name)
        local last_due = last and call('HGET', P .. 'tick:' .. last, 'd')
        if not last_due or tonumber(last_due) <= tonumber(due) then call('HSET', P .. 'last', name, id) end
        if cursor then call('HSET', P .. 'cursors', name, definition .. '|' .. anchor .. '|' .. due) end
    end
    done[#done + 1] = ours
end
return done
"""
)
# State, why, when it was sent, empty if it was not, and the ids.
_SETTLE = (
    _FENCED
    + """
for i = 5, #ARGV do
    local id = ARGV[i]
    local key = P .. 'tick:' .. id
    local row = call('HMGET', key, 's', 'd')
    if row[1] == 'due' then
        call('HSET', key, 's', ARGV[2], 'e', text(epoch))
        if ARGV[3] ~= '' then call('HSET', key, 'w', ARGV[3]) end
        if ARGV[4] ~= '' then call('HSET', key, 'x', ARGV[4]) end
        call('ZREM', P .. 'in:due', id)
        if ARGV[2] ~= 'sent' then call('ZADD', P .. 'in:' .. ARGV[2], row[2], id) end
    end
end
return 'OK'
"""
)
_NOTE = (
    _HEAD
    + """
local key = P .. 'tick:' .. ARGV[1]
local new, at, detail = ARGV[2], ARGV[3], ARGV[4]
if call('EXISTS', key) == 0 then return 0 end
local before = call('HGET', key, 'o') or ''
local open = before == '' or before == 'started'
if new == 'started' then
    if before == '' then call('HSET', key, 'o', new, 'b', at, 'i', detail) end
elseif open or (new == 'succeeded' and before ~= 'succeeded') then
    call('HSET', key, 'o', new, 'z', at, 'i', detail)
end
return 1
"""
)
_UNFINISHED = (
    _HEAD
    + _ROWS
    + """
return rows(call('ZRANGEBYSCORE', P .. 'in:due', '-inf', ARGV[1], 'LIMIT', 0, tonumber(ARGV[2])))
"""
)
_BY_ID = _HEAD + _ROWS + "return rows(ARGV)"

_LAST_SENT = (
    _HEAD
    + _ROWS
    + """
for start = 0, 9900, 100 do
    local ids = call('ZREVRANGE', P .. 'of:' .. ARGV[1], start, start + 99)
    for _, id in ipairs(ids) do
        local state = call('HGET', P .. 'tick:' .. id, 's')
        if state == 'sent' or state == 'due' then return rows({id}) end
    end
    if #ids < 100 then return {} end
end
return {}
"""
)
# Schedule or empty, limit, and of the last row of the page before: its due time and id, or empty.
_HISTORY = (
    _HEAD
    + _ROWS
    + """
local key = P .. 'rows'
if ARGV[1] ~= '' then key = P .. 'of:' .. ARGV[1] end
local limit = tonumber(ARGV[2])
if ARGV[3] == '' then return rows(call('ZREVRANGE', key, 0, limit - 1)) end
local rank = call('ZREVRANK', key, ARGV[4])
if rank then return rows(call('ZREVRANGE', key, rank + 1, rank + limit)) end
return rows(call('ZREVRANGEBYSCORE', key, '(' .. ARGV[3], '-inf', 'LIMIT', 0, limit))
"""
)
# Rows to look at, by their ids; what is DUE, or the latest of a schedule that has a cursor, stays.
_DELETE = """
local function delete(ids, limit)
    local gone = 0
    for _, id in ipairs(ids) do
        if gone == limit then break end
        local row = call('HMGET', P .. 'tick:' .. id, 'n', 's')
        local name, state = row[1], row[2]
        local latest = name and call('HGET', P .. 'last', name) == id
        if state ~= 'due' and not (latest and call('HEXISTS', P .. 'cursors', name) == 1) then
            call('DEL', P .. 'tick:' .. id)
            call('ZREM', P .. 'rows', id)
            if name then call('ZREM', P .. 'of:' .. name, id) end
            if latest then call('HDEL', P .. 'last', name) end
            if state and state ~= 'sent' then call('ZREM', P .. 'in:' .. state, id) end
            gone = gone + 1
        end
    end
    return gone
end
"""
_PRUNE_OLD = (
    _HEAD
    + _DELETE
    + """
local limit, gone, offset = tonumber(ARGV[2]), 0, 0
for _ = 1, 20 do
    local ids = call('ZRANGEBYSCORE', P .. 'rows', '-inf', '(' .. ARGV[1], 'LIMIT', offset, limit - gone)
    local now = delete(ids, limit - gone)
    gone = gone + now
    offset = offset + #ids - now
    if #ids == 0 or gone >= limit then break end
end
return gone
"""
)
# Where the walk over the schedules is, the most rows of each, and the limit.
_PRUNE_MANY = (
    _HEAD
    + _DELETE
    + """
local most, limit, gone = tonumber(ARGV[2]), tonumber(ARGV[3]), 0
local page = call('HSCAN', P .. 'last', ARGV[1], 'COUNT', 100)
for i = 1, #page[2], 2 do
    local key = P .. 'of:' .. page[2][i]
    local extra = call('ZCARD', key) - most
    if extra > 0 and gone < limit then
        -- Those to be sent are in the way, and stay: some more are looked at.
        local last = math.min(extra, limit - gone + 100) - 1
        gone = gone + delete(call('ZRANGE', key, 0, last), limit - gone)
    end
end
return {page[1], gone}
"""
)
_TELL = (
    _HEAD
    + """
local time = call('TIME')
local now = time[1] .. '.' .. string.rep('0', 6 - #time[2]) .. time[2]
call('HSET', P .. 'signs', ARGV[1], ARGV[2])
call('ZADD', P .. 'alive', now, ARGV[1])
for _, old in ipairs(call('ZRANGEBYSCORE', P .. 'alive', '-inf', '(' .. text(tonumber(time[1]) - 86400))) do
    call('HDEL', P .. 'signs', old)
    call('ZREM', P .. 'alive', old)
end
return now
"""
)
# A term's epoch, a field, its value ('now': the time), whether a term that is not there is made.
_TERM = (
    _HEAD
    + """
local time = call('TIME')
local now = time[1] .. '.' .. string.rep('0', 6 - #time[2]) .. time[2]
local key = P .. 'term:' .. ARGV[1]
if ARGV[4] == '1' then
    if call('HSETNX', key, 'holder', ARGV[3]) == 1 then call('HSET', key, 'began', now) end
    call('ZADD', P .. 'terms', ARGV[1], ARGV[1])
    for _, old in ipairs(call('ZRANGE', P .. 'terms', 0, -1001)) do
        call('DEL', P .. 'term:' .. old)
        call('ZREM', P .. 'terms', old)
    end
elseif call('EXISTS', key) == 1 then
    if ARGV[2] == 'ended' then
        if call('HSETNX', key, 'ended', now) == 1 then call('HSET', key, 'end', ARGV[3]) end
    elseif ARGV[2] == 'first' then
        call('HSETNX', key, 'first', now)
    else
        call('HSET', key, ARGV[2], ARGV[3])
    end
end
return 'OK'
"""
)
_TERMS = (
    _HEAD
    + """
local found = {}
for _, epoch in ipairs(call('ZREVRANGE', P .. 'terms', 0, tonumber(ARGV[1]) - 1)) do
    found[#found + 1] = {epoch, call('HGETALL', P .. 'term:' .. epoch)}
end
return found
"""
)
_REFUSED = (
    _HEAD
    + """
local time = call('TIME')
local now = time[1] .. '.' .. string.rep('0', 6 - #time[2]) .. time[2]
call('LPUSH', P .. 'refusals', now .. ' ' .. ARGV[1])
call('LTRIM', P .. 'refusals', 0, 99)
return 'OK'
"""
)
# From when, and the states that have a set of their own; the first number is that of all rows.
_COUNTS = (
    _HEAD
    + """
local found = {call('ZCOUNT', P .. 'rows', ARGV[1], '+inf')}
for i = 2, #ARGV do found[#found + 1] = call('ZCOUNT', P .. 'in:' .. ARGV[i], ARGV[1], '+inf') end
return found
"""
)

SCRIPTS = {
    "open": _OPEN,
    "put": _PUT,
    "drop": _DROP,
    "decide": _DECIDE,
    "settle": _SETTLE,
    "note": _NOTE,
    "unfinished": _UNFINISHED,
    "by_id": _BY_ID,
    "last_sent": _LAST_SENT,
    "history": _HISTORY,
    "prune_old": _PRUNE_OLD,
    "prune_many": _PRUNE_MANY,
    "counts": _COUNTS,
    "tell": _TELL,
    "term": _TERM,
    "terms": _TERMS,
    "refused": _REFUSED,
}
