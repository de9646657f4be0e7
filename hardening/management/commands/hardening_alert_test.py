"""Sends a test notification through the channels and says what became of it."""

from __future__ import annotations

import time
from threading import Thread
from typing import Any
from uuid import uuid4

from django.core.management.base import BaseCommand, CommandError, CommandParser

from hardening.alerts.channel import load_channel, reason_of
from hardening.alerts.notice import News, Notice
from hardening.alerts.rules import ChannelRule
from hardening.conf import load_settings
from hardening.core.alerts import Severity
from hardening.core.apps import NoCeleryApp, celery_app
from hardening.core.loading import BackendError

_PATIENCE_SECONDS = 30.0


class Command(BaseCommand):
    """`manage.py hardening_alert_test [--channel NAME]`."""

    help = "Send a test notification through every channel of alerts. Exit code 1 if one fails."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--channel", help="only the channel of this name")

    def handle(self, *args: Any, **options: Any) -> None:
        settings, findings = load_settings()
        rules = settings.alert_rules.channels
        chosen = [rule for rule in rules if options["channel"] in (None, rule.name)]
        if not chosen:
            known = ", ".join(rule.name for rule in rules)
            raise CommandError(f"there is no channel {options['channel']!r}; there are: {known}")
        wrong = [finding for finding in findings if "ALERTS" in finding.where]
        for finding in wrong:
            self.stderr.write(f"{finding.where}: {finding.what}")
        notice = _notice()
        failed = [rule.name for rule in chosen if not self._told(rule, notice)]
        if failed or wrong:
            raise CommandError(
                f"{len(failed)} of {len(chosen)} channel(s) failed; {len(wrong)} setting(s) wrong"
            )

    def _told(self, rule: ChannelRule, notice: Notice) -> bool:
        outcome = _outcome(rule, notice)
        self.stdout.write(f"{rule.name}: {outcome or 'delivered'}")
        return not outcome


def _outcome(rule: ChannelRule, notice: Notice) -> str:
    """ "" for delivered; else why not."""
    try:
        channel = load_channel(rule)
    except BackendError as exc:
        return f"FAILED: {exc}"
    ended: list[str] = []

    def send() -> None:
        try:
            channel.send(notice)
        except Exception as exc:  # A channel may be anyone's.
            ended.append(f"FAILED: {reason_of(exc, rule)}")
        else:
            ended.append("")

    thread = Thread(target=send, daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    return ended[0] if ended else f"FAILED: it has not ended within {_PATIENCE_SECONDS:.0f} s"


def _notice() -> Notice:
    try:
        app = str(celery_app().main or "celery")
    except NoCeleryApp:
        app = "celery"
    return Notice(
        id=uuid4().hex,
        incident="test",
        news=News.OPENED,
        condition="hardening.test",
        severity=Severity.CRITICAL,
        subject="test",
        summary="this is a test, nothing is wrong",
        detail="Sent by manage.py hardening_alert_test.",
        link="",
        opened_at=time.time(),
        at=time.time(),
        app=app,
    )
