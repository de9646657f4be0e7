"""Rules for redis-py; its ConnectionError and TimeoutError are no builtins."""

from __future__ import annotations

import re

from ..codes import attribute
from ..rule import Rule
from ..verdict import Kind

__all__ = ["RULES"]

_R = "redis.exceptions."
_WORD = re.compile(r"[A-Z]{2,20}(?= |$)")

NOT_NOW = frozenset(
    {
        *("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY"),
        "TRYAGAIN",
        *("NOAUTH", "WRONGPASS"),  # Passwords are rotated.
    }
)
NEVER = frozenset({"BUSYGROUP", "BUSYKEY", "CROSSSLOT", "NOPERM", "WRONGTYPE"})


def _message(exc: BaseException) -> str:
    args = attribute(exc, "args")
    first = args[0] if isinstance(args, tuple) and args else None
    return first if isinstance(first, str) else ""


def _reply(exc: BaseException) -> str | None:
    """The first word of the server's reply: redis-py 6.5 and later keep the one that they cut off."""
    code = attribute(exc, "status_code")
    if isinstance(code, str):
        return code
    match = _WORD.match(_message(exc))
    return match[0] if match else None


def _reply_verdict(code: str) -> Kind | None:
    if code in NOT_NOW:
        return Kind.TRANSIENT
    return Kind.PERMANENT if code in NEVER else None


def _certificate_refused(exc: BaseException) -> bool:
    """redis-py makes a text of the TLS error and keeps no reference to it."""
    return "CERTIFICATE_VERIFY_FAILED" in _message(exc)


def _could_not_connect(exc: BaseException) -> bool:
    return "cannot be connected" in _message(exc)


def _did_not_get_the_lock(exc: BaseException) -> bool:
    return _message(exc).startswith("Unable to acquire lock")


RULES: tuple[Rule, ...] = (
    Rule(
        name="redis.certificate",
        classes=(_R + "ConnectionError",),
        when=_certificate_refused,
        verdict=Kind.PERMANENT,
        why="The certificate of the Redis server is not trusted.",
    ),
    Rule(
        name="redis.authentication",
        classes=(
            _R + "AuthenticationError",
            _R + "AuthenticationWrongNumberOfArgsError",
        ),
        read=_reply,
        verdict=Kind.TRANSIENT,
        why=(
            "Redis refuses the user or the password: a password that is being rotated, or a server that is "
            "being replaced, and no message is to blame."
        ),
    ),
    Rule(
        name="redis.permission",
        classes=(_R + "AuthorizationError", _R + "NoPermissionError"),
        read=_reply,
        verdict=Kind.PERMANENT,
        why="Redis refuses the command to this user.",
    ),
    Rule(
        name="redis.busy",
        classes=(
            _R + "AskError",
            _R + "BusyLoadingError",
            _R + "ClusterError",
            _R + "OutOfMemoryError",
            _R + "ReadOnlyError",
            _R + "SlotNotCoveredError",
            _R + "TryAgainError",
        ),
        read=_reply,
        verdict=Kind.TRANSIENT,
        why=(
            "Redis is loading, full, moving its data or has become a replica: it, or the failover, will come "
            "to an end."
        ),
    ),
    Rule(
        name="redis.connection",
        classes=(_R + "ConnectionError", _R + "TimeoutError"),
        verdict=Kind.TRANSIENT,
        why="No connection to Redis, or it broke, or Redis did not answer in time.",
    ),
    Rule(
        name="redis.cluster_connection",
        classes=(_R + "RedisClusterException",),
        when=_could_not_connect,
        verdict=Kind.TRANSIENT,
        why="No node of the Redis cluster could be reached.",
    ),
    Rule(
        name="redis.contention",
        classes=(_R + "WatchError",),
        verdict=Kind.TRANSIENT,
        why="Another client changed a watched key: the transaction has to be made anew.",
    ),
    Rule(
        name="redis.lock",
        classes=(_R + "LockError",),
        when=_did_not_get_the_lock,
        verdict=Kind.TRANSIENT,
        why="Another client held the lock for longer than this one waited.",
    ),
    Rule(
        name="redis.reply",
        classes=(_R + "ResponseError",),
        read=_reply,
        decide=_reply_verdict,
        verdict=Kind.UNKNOWN,
        why=(
            "The first word of Redis's reply decides: BUSY, MISCONF, NOREPLICAS, NOAUTH pass; WRONGTYPE, "
            "BUSYGROUP, CROSSSLOT do not; a mere ERR may be either."
        ),
    ),
    Rule(
        name="redis.usage",
        classes=(_R + "DataError", _R + "PubSubError", _R + "CrossSlotTransactionError"),
        verdict=Kind.PERMANENT,
        why="The program gave redis-py what it cannot send.",
    ),
)
