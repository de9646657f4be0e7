"""The auditor: messages that no index knows, which no sweep would ever find.

Ours are taken, leased and given back in one step each, so there are none unless Redis evicts keys or
somebody deletes them. kombu's fail-over and eviction leave some in the keys of plain workers. Each gets an
entry in its index anew: a holder that lives renews it or acknowledges it, and without one it comes back
when that lease, or a plain worker's timeout, is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redis import Redis

from .store import LeaseStore

__all__ = ["audit", "audit_in_turn", "orphans"]

_FIND = """
local step = redis.call('HSCAN', KEYS[2], ARGV[1], 'COUNT', 200)
local found = {}
for i = 1, #step[2], 2 do
    if not redis.call('ZSCORE', KEYS[1], step[2][i]) then found[#found + 1] = step[2][i] end
end
return {step[1], found}
"""
"""In the server, so that no message travels: they may be large, and many."""

_ADOPT_PLAIN = """
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return 0 end
return redis.call('ZADD', KEYS[1], 'NX', redis.call('TIME')[1], ARGV[1])
"""


def orphans(client: Redis, *, index: str, messages: str) -> Iterator[str]:
    """The tags in a hash of messages that its index lacks."""
    find = client.register_script(_FIND)
    cursor: Any = 0
    while True:
        cursor, found = find(keys=[index, messages], args=[cursor])
        for tag in found:
            yield tag.decode() if isinstance(tag, bytes) else str(tag)
        if not int(cursor):
            return


def audit(store: LeaseStore, plain: tuple[str, str], *, dry_run: bool = False) -> list[str]:
    """Cover every message without an index entry, ours and plain workers'; returns their tags."""
    index, messages = plain
    adopt_plain = store.client.register_script(_ADOPT_PLAIN)
    ours = orphans(store.client, index=store.keys.index, messages=store.keys.messages)
    found = [tag for tag in ours if dry_run or store.adopt(tag)]
    theirs = orphans(store.client, index=index, messages=messages)
    found += [tag for tag in theirs if dry_run or adopt_plain(keys=[index, messages], args=[tag])]
    return found


def audit_in_turn(store: LeaseStore, plain: tuple[str, str], *, every_seconds: float) -> list[str]:
    """As `audit`, if no other worker has done it lately."""
    turn = store.client.set(
        f"{store.keys.messages}.audited", "1", nx=True, ex=max(1, int(every_seconds * 0.9))
    )
    return audit(store, plain) if turn else []
