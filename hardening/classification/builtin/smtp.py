"""Rules for smtplib, and so for Django's SMTP mail: the server's reply code decides."""

from __future__ import annotations

from collections.abc import Mapping

from ..codes import attribute
from ..rule import Rule
from ..verdict import Kind

__all__ = ["RULES"]


def _reply(exc: BaseException) -> str | None:
    return _code(attribute(exc, "smtp_code"))


def _recipients_reply(exc: BaseException) -> str | None:
    """Of all recipients' replies the first that leaves hope, else the first."""
    recipients = attribute(exc, "recipients")
    if not isinstance(recipients, Mapping):
        return None
    replies = [_code(reply[0]) for reply in recipients.values() if isinstance(reply, tuple) and reply]
    codes = [code for code in replies if code]
    return next((code for code in codes if code.startswith("4")), codes[0] if codes else None)


def _code(value: object) -> str | None:
    return str(value) if isinstance(value, int) and 100 <= value <= 599 else None


def _verdict(code: str) -> Kind | None:
    return {"4": Kind.TRANSIENT, "5": Kind.PERMANENT}.get(code[:1])


RULES: tuple[Rule, ...] = (
    Rule(
        name="smtp.reply",
        classes=("smtplib.SMTPResponseException",),
        read=_reply,
        decide=_verdict,
        why=(
            '4xx says "try again later" (421, 450, 451, 452, 454), 5xx says "never" (535 wrong password, '
            "550 no such mailbox)."
        ),
    ),
    Rule(
        name="smtp.recipients",
        classes=("smtplib.SMTPRecipientsRefused",),
        read=_recipients_reply,
        decide=_verdict,
        why="Every recipient was refused: for ever only if all of them were refused with 5xx.",
    ),
    Rule(
        name="smtp.connection",
        classes=("smtplib.SMTPServerDisconnected",),
        verdict=Kind.TRANSIENT,
        why="The connection to the mail server broke.",
    ),
    Rule(
        name="smtp.not_supported",
        classes=("smtplib.SMTPNotSupportedError",),
        verdict=Kind.PERMANENT,
        why="The server does not know the command: STARTTLS, AUTH, SMTPUTF8.",
    ),
)
