"""A link to the Redis of hardening's stores: `hardening.core.redis_link`, with what they raise and advise."""

from __future__ import annotations

from typing import TypeVar

from hardening.core import redis_link
from hardening.core.redis_link import Linked, impatient
from hardening.store import StoreUnavailable

__all__ = ["Linked", "OnRedis", "impatient"]

L = TypeVar("L", bound=Linked)


class OnRedis(redis_link.OnRedis[L]):
    """Something of hardening's kept in Redis."""

    keeps = "the shared state"
    remedy = 'set HARDENING["STORE"] to another store, or give RedisStore a url'
    unavailable = StoreUnavailable
