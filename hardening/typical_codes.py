"""Codes that people meet, by the built-in rule that reads them: examples for who asks what a rule says."""

from __future__ import annotations

from collections.abc import Mapping

from .classification.rule import Rule

__all__ = ["TYPICAL", "typical_codes"]

_STATUSES = ("400", "401", "403", "404", "408", "409", "410", "422", "425", "429", "500", "502", "503", "504")
_REPLIES = ("421", "450", "451", "452", "535", "550", "552", "554")
_DATABASE = (
    *("40001", "40P01", "55P03", "57P01", "53300", "28P01", "23505", "0A000", "42P01"),
    *("1205", "1213", "2006", "1045", "1062", "1146", "SQLITE_BUSY", "SQLITE_CONSTRAINT"),
)
_ERRNOS = ("ECONNRESET", "ETIMEDOUT", "EMFILE", "ENOSPC", "EIO", "ENOENT", "EACCES", "EINVAL")
_BROKER = ("320", "405", "506", "541", "403", "404", "406", "530")
_CERTIFICATE = ("CERTIFICATE_VERIFY_FAILED",)

TYPICAL: Mapping[str, tuple[str, ...]] = {
    "python.os_error": _ERRNOS,
    "django.connection": _DATABASE,
    "django.data": _DATABASE,
    "django.database": _DATABASE,
    "driver.connection": _DATABASE,
    "driver.data": _DATABASE,
    "driver.database": _DATABASE,
    "tls.certificate": _CERTIFICATE,
    "http.content": _STATUSES,
    "http.status": _STATUSES,
    "http.retries": ("TooManyRedirects", *_STATUSES),
    "http.urlopen": ("ECONNREFUSED", "ETIMEDOUT", "URL"),
    "smtp.reply": _REPLIES,
    "smtp.recipients": _REPLIES,
    "redis.reply": ("BUSY", "MISCONF", "NOREPLICAS", "READONLY", "WRONGTYPE", "BUSYGROUP", "NOAUTH"),
    "broker.certificate": _CERTIFICATE,
    "broker.reply": _BROKER,
    "broker.connection": _BROKER,
    "aws.code": (
        *("ThrottlingException", "RequestLimitExceeded", "RequestTimeout", "InternalError"),
        *("ExpiredToken", "ResourceInUseException", "TransactionCanceledException"),
    ),
    "aws.unavailable": ("500", "503"),
    "aws.refused": ("400", "403", "404"),
    "aws.certificate": _CERTIFICATE,
    "grpc.status": (
        *("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "INVALID_ARGUMENT"),
        *("NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"),
    ),
    "stripe.busy": ("lock_timeout", "rate_limit", "idempotency_key_in_use", "processing_error"),
    "stripe.certificate": _CERTIFICATE,
    "stripe.status": ("400", "402", "409", "429", "500", "503"),
}


def typical_codes(rule: Rule) -> tuple[str, ...]:
    """Codes to show for a rule. Of a project's rule those that it lists, none for one with a function."""
    listed = getattr(rule.decide, "__self__", None)
    return tuple(map(str, listed)) if isinstance(listed, Mapping) else TYPICAL.get(rule.name, ())
