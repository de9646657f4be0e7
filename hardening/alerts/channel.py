"""The port of channels, those of the settings, and what is wrong with them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from hardening.core.findings import Finding, Level
from hardening.core.loading import BackendError, load_backend
from hardening.core.redaction import project_redactor

from .notice import Notice
from .rules import LOG, AlertRules, ChannelRule

__all__ = ["Channel", "channel_findings", "channels_of", "load_channel", "reason_of"]

logger = logging.getLogger("hardening")

CODE = "CH031"


@runtime_checkable
class Channel(Protocol):
    """Tells people. Constructed with its OPTIONS as keyword arguments, before any fork.

    One that has an attribute `instant` that is true is used in the worker's main loop: it never waits.
    """

    def send(self, notice: Notice) -> None:
        """Returns when it is delivered, raises when it is not. Ends in less than a minute; in a thread of
        its own, so it must not log: a worker may fork at that moment."""
        ...


def load_channel(rule: ChannelRule) -> Channel:
    """Raises BackendError, whose text quotes no option."""
    try:
        channel: Channel = load_backend(Channel, rule.backend, rule.options)
    except BackendError as exc:
        raise BackendError(_without(str(exc), _texts(rule.options))) from None
    return channel


def channels_of(rules: AlertRules) -> list[tuple[ChannelRule, Channel]]:
    """Those that can be used; the log where none can."""
    found = []
    for rule in rules.channels:
        try:
            found.append((rule, load_channel(rule)))
        except BackendError as exc:
            logger.error("alerts are not told on the channel %r: %s", rule.name, exc)
    return found or [(LOG, load_channel(LOG))]


def channel_findings(rules: AlertRules) -> list[Finding]:
    """Channels that cannot be used here. They stop no worker: the others are used."""
    findings = []
    for rule in rules.channels:
        try:
            load_channel(rule)
        except BackendError as exc:
            findings.append(
                Finding(
                    code=CODE,
                    level=Level.WARNING,
                    what=f"alerts are not told on the channel {rule.name!r}: {exc}",
                    where='settings.HARDENING["ALERTS"]["CHANNELS"]',
                    remedy="Correct its BACKEND and OPTIONS; try it with manage.py hardening_alert_test.",
                )
            )
    return findings


def reason_of(exc: BaseException, rule: ChannelRule) -> str:
    """Why a channel failed, without what its options say."""
    return _without(f"{type(exc).__name__}: {exc}", _texts(rule.options))[:500]


def _without(text: str, secrets: Iterable[str]) -> str:
    return project_redactor().text(text, sorted(secrets, key=len, reverse=True))


def _texts(value: object) -> set[str]:
    """Every text in the options that could be a secret."""
    if isinstance(value, str):
        return {value} if len(value) >= 8 else set()
    if isinstance(value, dict):
        return set().union(*map(_texts, value.values()))
    if isinstance(value, (list, tuple, set)):
        return set().union(*map(_texts, value))
    return set()
