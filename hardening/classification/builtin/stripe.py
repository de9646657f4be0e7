"""Rules for stripe: its error codes, its classes, then the HTTP status."""

from __future__ import annotations

from ..codes import attribute, http_status, http_verdict, retry_after, tls_alert, tls_verdict
from ..rule import Rule
from ..verdict import Kind

__all__ = ["RULES"]

NOT_NOW = frozenset({"idempotency_key_in_use", "lock_timeout", "processing_error", "rate_limit"})


def _both(*names: str) -> tuple[str, ...]:
    """stripe moved its errors from stripe.error to stripe._error in version 8."""
    return tuple(f"{module}.{name}" for module in ("stripe._error", "stripe.error") for name in names)


def _code(exc: BaseException) -> str | None:
    """Stripe's error code; most of the library's classes leave it in the body of the answer."""
    for path in (("code",), ("json_body", "error", "code")):
        code = attribute(exc, *path)
        if isinstance(code, str) and code:
            return code
    return None


def _code_or_status(exc: BaseException) -> str | None:
    return _code(exc) or http_status(exc)


def _code_verdict(code: str) -> Kind | None:
    return Kind.TRANSIENT if code in NOT_NOW else None


RULES: tuple[Rule, ...] = (
    Rule(
        name="stripe.busy",
        # Every class that a code may come with: a rule on StripeError alone would be asked last.
        classes=_both("APIError", "CardError", "IdempotencyError", "InvalidRequestError", "RateLimitError"),
        read=_code,
        decide=_code_verdict,
        retry_after=retry_after,
        why=(
            "lock_timeout, rate_limit, idempotency_key_in_use: another request is in the way. "
            "processing_error: something went wrong with the card's network, not with the card."
        ),
    ),
    Rule(
        name="stripe.rate_limit",
        classes=_both("RateLimitError"),
        read=_code_or_status,
        verdict=Kind.TRANSIENT,
        retry_after=retry_after,
        why="Too many requests.",
    ),
    Rule(
        name="stripe.certificate",
        classes=_both("APIConnectionError"),
        read=tls_alert,
        decide=tls_verdict,
        why="The certificate of the API is not trusted.",
    ),
    Rule(
        name="stripe.connection",
        classes=_both("APIConnectionError"),
        verdict=Kind.TRANSIENT,
        why="No connection to Stripe, or it broke, or no answer in time.",
    ),
    Rule(
        name="stripe.refused",
        classes=(
            *_both(
                "AuthenticationError",
                "CardError",
                "IdempotencyError",
                "InvalidRequestError",
                "PermissionError",
                "SignatureVerificationError",
            ),
            "stripe.oauth_error.OAuthError",
        ),
        read=_code_or_status,
        verdict=Kind.PERMANENT,
        why="Stripe refuses this very request, the card or the key: the same request gets the same answer.",
    ),
    Rule(
        name="stripe.status",
        classes=_both("StripeError"),
        read=http_status,
        decide=http_verdict,
        verdict=Kind.UNKNOWN,
        retry_after=retry_after,
        why="Any other answer by its HTTP status, such as an APIError with 500.",
    ),
)
