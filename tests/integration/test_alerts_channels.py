"""Each channel against a real server; what the commands say, and their exit codes."""

from __future__ import annotations

import hmac
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from django.core import mail
from django.core.management import CommandError, call_command

from hardening.alerts import delivery
from hardening.alerts.channels.apprise import AppriseChannel, AppriseMissing
from hardening.alerts.channels.email import EmailChannel
from hardening.alerts.channels.log import LogChannel
from hardening.alerts.channels.webhook import NotDelivered, WebhookChannel
from hardening.alerts.notice import News
from hardening.core.alerts import Fact, Severity
from hardening.testing.ports import free_port
from tests.helpers.alerting import Postbox, Probe, notice
from tests.helpers.failing_http import FailingHttp

WEBHOOK = "hardening.alerts.channels.webhook.WebhookChannel"
EMAIL = "hardening.alerts.channels.email.EmailChannel"


@pytest.fixture
def box() -> Iterator[Postbox]:
    with Postbox() as box:
        yield box


@pytest.fixture
def failing() -> Iterator[FailingHttp]:
    with FailingHttp() as server:
        yield server


def test_a_webhook_posts_the_notice_signed_and_with_the_credentials_of_its_url(box) -> None:
    url = box.url.replace("://", "://us%40er:pw@")
    WebhookChannel(url=url, secret="key", headers={"X-Team": "shop"}).send(notice())

    (posted,) = box.posted
    assert posted.notice == notice().as_dict()
    assert posted.notice["at"] == "1970-01-01T00:01:00+00:00"
    assert posted.headers["content-type"] == "application/json"
    assert posted.headers["x-team"] == "shop"
    assert posted.headers["authorization"] == "Basic dXNAZXI6cHc="
    signed = posted.headers["x-hardening-timestamp"].encode() + b"." + posted.body
    expected = hmac.digest(b"key", signed, "sha256").hex()
    assert posted.headers["x-hardening-signature"] == f"sha256={expected}"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_webhook_follows_no_redirect(box, status) -> None:
    with Postbox(status, location=box.url) as redirecting, pytest.raises(NotDelivered, match=str(status)):
        WebhookChannel(url=redirecting.url).send(notice())

    assert box.posted == []


def test_a_webhook_that_fails_says_how_and_not_where(failing) -> None:
    with pytest.raises(NotDelivered) as wrong:
        WebhookChannel(url=f"{failing.answering(503)}/s3cr3t?key=s3cr3t").send(notice())
    assert str(wrong.value) == f"http://127.0.0.1:{failing.port} answers 503"

    with pytest.raises(NotDelivered) as refused:
        WebhookChannel(url=f"http://u:s3cr3t@127.0.0.1:{free_port()}/s3cr3t").send(notice())
    assert "refused" in str(refused.value)
    assert "s3cr3t" not in str(refused.value)

    with pytest.raises(NotDelivered) as garbage:
        WebhookChannel(url=failing.answering(raw=b"\x00\x01\r\n\r\n")).send(notice())
    assert "BadStatusLine" in str(garbage.value)


def test_a_webhook_that_hangs_is_left_within_its_time_out(failing) -> None:
    began = time.monotonic()

    with pytest.raises(NotDelivered, match=r"(?i)timed? ?out"):
        WebhookChannel(url=failing.answering(slow=True), timeout=0.3).send(notice())

    assert time.monotonic() - began < 3


def test_an_email_goes_to_the_admins_or_to_whom_the_options_name(settings) -> None:
    settings.ADMINS = [("Ada", "ada@shop.example")]
    EmailChannel().send(notice())
    settings.ADMINS = ["ada@shop.example"]
    EmailChannel().send(notice())
    EmailChannel(to=["ops@shop.example"], sender="alerts@shop.example").send(notice(news=News.RESOLVED))

    assert [each.to for each in mail.outbox] == [
        ["ada@shop.example"],
        ["ada@shop.example"],
        ["ops@shop.example"],
    ]
    assert mail.outbox[0].subject == "[shop] opened error: the shelf is empty"
    assert "since noon" in mail.outbox[0].body
    assert "https://shop.example/shelf/7" in mail.outbox[0].body
    assert mail.outbox[2].subject.startswith("[shop] resolved")
    assert mail.outbox[2].from_email == "alerts@shop.example"


def test_an_email_to_a_server_that_is_not_there_is_an_error(settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", free_port()

    with pytest.raises(ConnectionRefusedError):
        EmailChannel(to="ops@shop.example").send(notice())


def test_the_log_has_the_level_of_the_severity(caplog) -> None:
    caplog.set_level(logging.INFO, "hardening.alerts")
    LogChannel().send(notice(severity=Severity.CRITICAL, detail="one\ntwo"))
    LogChannel().send(notice(news=News.RESOLVED))

    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("CRITICAL", "[shop] opened critical: the shelf is empty (one | two)"),
        ("INFO", "[shop] resolved error: the shelf is empty (since noon)"),
    ]


class FakeApprise:
    """What we use of apprise.Apprise, as its documentation has it."""

    sent: list[Any] = []
    works: bool | None = True

    def __init__(self) -> None:
        self.urls: list[str] = []

    def __len__(self) -> int:
        return len(self.urls)

    def add(self, url: str) -> bool:
        self.urls.append(url)
        return not url.startswith("nonsense")

    def notify(self, **sent: Any) -> bool | None:
        self.sent.append(sent)
        return self.works


def test_apprise_is_told_with_the_kind_of_news(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", SimpleNamespace(Apprise=FakeApprise))
    monkeypatch.setattr(FakeApprise, "sent", [])
    channel = AppriseChannel(urls=["ntfy://shop"])

    channel.send(notice())
    channel.send(notice(news=News.RESOLVED))

    assert [each["notify_type"] for each in FakeApprise.sent] == ["failure", "success"]
    assert FakeApprise.sent[0]["title"] == notice().title
    monkeypatch.setattr(FakeApprise, "works", None)
    with pytest.raises(NotDelivered):
        channel.send(notice())
    with pytest.raises(ValueError, match="number 2") as wrong:
        AppriseChannel(urls=["ntfy://shop", "nonsense://s3cr3t"])
    assert "s3cr3t" not in str(wrong.value)


def test_without_apprise_it_is_said_how_to_install_it(monkeypatch, settings) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(AppriseMissing, match=r"celery-hardening\[alerts\]"):
        AppriseChannel(urls="ntfy://shop")


@pytest.fixture
def app(monkeypatch, settings) -> Celery:
    app = Celery("shop", broker="memory://", set_as_current=False)
    for command in ("hardening_alerts", "hardening_alert_test"):
        monkeypatch.setattr(f"hardening.management.commands.{command}.celery_app", lambda: app)
    return app


def with_channels(settings: Any, *channels: dict[str, Any]) -> None:
    settings.HARDENING = {
        "STORE": {"BACKEND": "hardening.stores.memory.MemoryStore"},
        "ALERTS": {"CHANNELS": list(channels), "BASE_URL": "https://shop.example"},
    }


def run(command: str, *args: str) -> tuple[str, str]:
    """What it printed, and the error that it ended with."""
    out = StringIO()
    try:
        call_command(command, *args, stdout=out, stderr=StringIO())
    except CommandError as exc:
        return out.getvalue(), f"exit code {exc.returncode}: {exc}"
    return out.getvalue(), ""


def test_alert_test_sends_through_each_channel_and_fails_if_one_does(app, settings, box, failing) -> None:
    bad = f"{failing.answering(500)}/s3cr3tpath"
    with_channels(
        settings,
        {"BACKEND": WEBHOOK, "OPTIONS": {"url": box.url}},
        {"BACKEND": WEBHOOK, "OPTIONS": {"url": bad}, "NAME": "pager"},
        {"BACKEND": EMAIL, "OPTIONS": {"to": ["ops@shop.example"]}},
        {"BACKEND": "nowhere.Channel"},
    )

    out, error = run("hardening_alert_test")

    assert "webhook: delivered" in out
    assert f"pager: FAILED: NotDelivered: http://127.0.0.1:{failing.port} answers 500" in out
    assert "email: delivered" in out
    assert "FAILED: nowhere.Channel cannot be loaded" in out
    assert error.startswith("exit code 1: 2 of 4 channel(s) failed")
    assert "s3cr3t" not in out + error
    assert box.posted[0].notice["condition"] == "hardening.test"
    assert len(mail.outbox) == 1

    assert run("hardening_alert_test", "--channel", "email") == ("email: delivered\n", "")
    assert "there is no channel 'fax'" in run("hardening_alert_test", "--channel", "fax")[1]


def test_once_looks_delivers_and_shows_what_is_open(app, settings, box, monkeypatch) -> None:
    with_channels(settings, {"BACKEND": WEBHOOK, "OPTIONS": {"url": box.url}})
    probe = Probe(facts=[Fact("shelf", "it is empty", link="/admin/shelf/")])
    monkeypatch.setattr("hardening.alerts.engine.conditions_of", lambda app: (probe.condition,))

    out, error = run("hardening_alerts", "--once", "--json")

    rows = [json.loads(line) for line in out.splitlines()]
    assert error == ""
    assert [(row["told"]["channel"], row["told"]["error"]) for row in rows if "told" in row] == [
        ("webhook", "")
    ]
    assert [row["open"]["subject"] for row in rows if "open" in row] == ["shelf"]
    assert box.posted[0].notice["link"] == "https://shop.example/admin/shelf/"

    out, error = run("hardening_alerts", "--once")
    assert out == "open: shop.probe: it is empty\n"
    assert len(box.posted) == 1


def test_once_fails_if_something_could_not_be_looked_at_or_delivered(
    app, settings, failing, monkeypatch
) -> None:
    with_channels(settings, {"BACKEND": WEBHOOK, "OPTIONS": {"url": failing.answering(500)}})
    probe = Probe(facts=[Fact("shelf", "it is empty")])
    monkeypatch.setattr("hardening.alerts.engine.conditions_of", lambda app: (probe.condition,))

    out, error = run("hardening_alerts", "--once")
    assert "webhook: FAILED, NotDelivered" in out
    assert "not everything" in error

    probe.error = RuntimeError("password=hunter22")
    time.sleep(0.1)  # The next look is due then.
    out, error = run("hardening_alerts", "--once")
    assert "unknown: shop.probe: RuntimeError: password=[redacted]" in out
    assert "not everything" in error


def test_the_command_goes_on_until_sigterm(app, settings, box, monkeypatch) -> None:
    with_channels(settings, {"BACKEND": WEBHOOK, "OPTIONS": {"url": box.url}})
    probe = Probe(facts=[Fact("shelf", "it is empty")])
    monkeypatch.setattr("hardening.alerts.engine.conditions_of", lambda app: (probe.condition,))
    monkeypatch.setattr("hardening.management.commands.hardening_alerts.EVERY_SECONDS", 0.02)
    settle = delivery.settle

    def settled(*args: Any, **options: Any) -> None:
        settle(*args, **options)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(delivery, "settle", settled)
    before = signal.getsignal(signal.SIGTERM)

    out, error = run("hardening_alerts")

    assert (out, error) == ("webhook: delivered: [shop] opened error: it is empty\n", "")
    assert signal.getsignal(signal.SIGTERM) is before
