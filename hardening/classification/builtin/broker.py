"""Rules for kombu and amqp, that is for tasks that publish or talk to the broker themselves."""

from __future__ import annotations

import re

from ..codes import attribute, held_errors, is_a, tls_alert, tls_verdict
from ..rule import Rule
from ..verdict import Kind

__all__ = ["RULES"]

_A = "amqp.exceptions."
_K = "kombu.exceptions."

# AMQP 0-9-1 reply codes. Left out, so that their class decides or nothing does: 501, 504 and 505, which
# say that the two ends lost track of each other, often because threads share a channel.
NOT_NOW = frozenset({"313", "320", "403", "405", "506", "541"})
NEVER = frozenset({"311", "402", "404", "406", "502", "503", "530", "540"})

_PASSES = re.compile(
    r"\bis down\b|\blimit\b.*\([0-9]+\) (is )?reached|acknowledgement on channel [0-9]+ timed out"
    r"|\bvhost\b.*\bnot found|\baccess to vhost\b.*\brefused"
)


def _reply(exc: BaseException) -> str | None:
    """The reply code of the error or of the one that kombu raised it from."""
    for error in held_errors(exc):
        code = attribute(error, "reply_code")
        if isinstance(code, int) and not isinstance(code, bool) and code:
            return str(code)
    return None


def _verdict(code: str) -> Kind | None:
    if code in NOT_NOW:
        return Kind.TRANSIENT
    return Kind.PERMANENT if code in NEVER else None


def _will_pass(exc: BaseException) -> bool:
    """RabbitMQ uses the codes of what is missing or not allowed also for what is only down or full."""
    text = attribute(exc, "reply_text")
    return isinstance(text, str) and _PASSES.search(text) is not None


def _redis_refuses(exc: BaseException) -> bool:
    """kombu makes an OperationalError of every ConnectionError of redis-py, also of a wrong password."""
    return any(
        is_a(error, "redis.exceptions.AuthenticationError", "redis.exceptions.AuthorizationError")
        for error in held_errors(exc)
    )


def _tls_alert(exc: BaseException) -> str | None:
    """Of redis-py there is only its text."""
    refused = "CERTIFICATE_VERIFY_FAILED"
    args = attribute(exc, "args")
    text = args[0] if isinstance(args, tuple) and args else None
    return tls_alert(exc) or (refused if isinstance(text, str) and refused in text else None)


RULES: tuple[Rule, ...] = (
    Rule(
        name="broker.certificate",
        classes=(_K + "OperationalError",),
        read=_tls_alert,
        decide=tls_verdict,
        why="The certificate of the broker is not trusted, or it does not trust ours.",
    ),
    Rule(
        name="broker.authentication",
        classes=(_K + "OperationalError",),
        when=_redis_refuses,
        verdict=Kind.TRANSIENT,
        why=(
            "The broker refuses the user or the password: a password that is being rotated, or a server that "
            "is being replaced, and no message is to blame."
        ),
    ),
    Rule(
        name="broker.resource",
        classes=(_A + "AccessRefused", _A + "NotAllowed", _A + "NotFound", _A + "PreconditionFailed"),
        when=_will_pass,
        read=_reply,
        verdict=Kind.TRANSIENT,
        why=(
            "A queue's node is down, the virtual host is down, missing or closed to the user, a limit is "
            "reached, or a time-out: it will pass."
        ),
    ),
    Rule(
        name="broker.reply",
        classes=(_A + "AMQPError",),
        read=_reply,
        decide=_verdict,
        why=(
            "The broker's reply code decides: 320 connection forced, 403 refused (passwords and rights are "
            "changed while messages wait), 405 locked, 506 out of resources and 541 internal error pass; 404 "
            "not found, 406 precondition failed and 530 not allowed do not."
        ),
    ),
    Rule(
        name="broker.connection",
        classes=(
            _K + "InconsistencyError",
            _K + "OperationalError",
            _A + "RecoverableChannelError",
            _A + "RecoverableConnectionError",
        ),
        read=_reply,
        decide=_verdict,
        verdict=Kind.TRANSIENT,
        why="No connection to the broker, or it broke.",
    ),
    Rule(
        name="broker.nacked",
        classes=(_A + "MessageNacked",),
        verdict=Kind.TRANSIENT,
        why="The broker did not take the message: its queue is full, or it could not write it.",
    ),
    Rule(
        name="broker.limit",
        classes=(_K + "LimitExceeded",),
        verdict=Kind.TRANSIENT,
        why="Every connection or channel of the pool is in use.",
    ),
    Rule(
        name="broker.content",
        classes=(_K + "SerializationError", _K + "SerializerNotInstalled"),
        verdict=Kind.PERMANENT,
        why="The message cannot be encoded or decoded, or its content type is not accepted.",
    ),
    Rule(
        name="broker.usage",
        classes=(_K + "MessageStateError", _K + "NotBoundError", _K + "VersionMismatch"),
        verdict=Kind.PERMANENT,
        why="The program uses kombu in a way that cannot work.",
    ),
)
