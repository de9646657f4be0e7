"""How the chord of a member on Redis stands, and what the member has counted of it."""

from __future__ import annotations

import sys
from enum import Enum
from functools import partial
from typing import Any

from .private import CHORD_CLAIM_SCRIPT, CHORD_KEYS, celery_version

__all__ = ["Standing", "chord_size", "forget_part", "has_claims", "is_left_behind", "standing_of"]


class Standing(Enum):
    """How a member's chord stands."""

    SETTLED = "it goes on without this member"
    UNCOUNTED = "its part is not counted"
    CLAIMED = "somebody is to publish its body, or died of it"
    OPEN = "it is complete, and nobody publishes its body"


def standing_of(request: Any) -> Standing:
    """Ask Redis. One round trip."""
    return _standing(request.task.backend, request)


def is_left_behind(backend: Any, member: Any) -> bool:
    """Whether a member is counted, its chord is complete, and yet does not go on. `member` is its context."""
    return has_claims(backend) and _standing(backend, member) in (Standing.CLAIMED, Standing.OPEN)


def chord_size(backend: Any, group: str) -> int | None:
    """How many members Celery counts for a chord, once the last of them is about to be published; None where
    it does not say so: on other backends than Redis, and of a chord that is over."""
    if not _is_redis(backend):
        return None
    size = backend.client.get(backend.get_key_for_group(group, CHORD_KEYS[2]))
    return None if size is None else int(size)


def forget_part(backend: Any, member: Any) -> None:
    """Take back what a member counted before, where it would count twice: on Redis with Celery 5.6."""
    if celery_version() >= (5, 7) or not member.group or not _is_redis(backend):
        return
    key = backend.get_key_for_group(member.group, CHORD_KEYS[0])
    if backend._chord_zset:
        index = "+inf" if member.group_index is None else member.group_index
        found, remove = backend.client.zrangebyscore(key, index, index), backend.client.zrem
    else:
        found, remove = backend.client.lrange(key, 0, -1), partial(_remove_from_list, backend.client)
    for part in found:
        if backend.decode(part)[1] == member.id:
            remove(key, part)


def _remove_from_list(client: Any, key: Any, part: Any) -> None:
    client.lrem(key, 1, part)


def _standing(backend: Any, request: Any) -> Standing:
    results, more, size, counted, claim = (
        backend.get_key_for_group(request.group, ending) for ending in CHORD_KEYS
    )
    index = "+inf" if request.group_index is None else request.group_index
    with backend.client.pipeline(transaction=True) as pipe:
        pipe.get(claim).sismember(counted, f"{request.id}:{index}").get(size).get(more)
        (pipe.zcard if backend._chord_zset else pipe.llen)(results)
        claimed, is_counted, wanted, extra, ready = pipe.execute()
    if claimed in (b"done", "done"):
        return Standing.SETTLED
    if not is_counted:
        return Standing.UNCOUNTED
    if wanted is None or ready != int(wanted) + int(extra or 0):
        return Standing.SETTLED
    return Standing.OPEN if claimed is None else Standing.CLAIMED


def has_claims(backend: Any) -> bool:
    """Whether it is Redis, and Celery's that claims a body before it publishes it."""
    return _is_redis(backend) and hasattr(sys.modules["celery.backends.redis"], CHORD_CLAIM_SCRIPT)


def _is_redis(backend: Any) -> bool:
    module: Any = sys.modules.get("celery.backends.redis")  # Who has the backend loaded it.
    return module is not None and isinstance(backend, module.RedisBackend)
