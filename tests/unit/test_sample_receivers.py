"""The servers that the demo talks to: each misbehaves as asked, until it is mended."""

from __future__ import annotations

import smtplib
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

import pytest
import requests

from sample_project.receivers.http import HttpReceiver
from sample_project.receivers.mended import Mended
from sample_project.receivers.smtp import SmtpReceiver


@pytest.fixture
def mended(tmp_path) -> Mended:
    return Mended(tmp_path / "mended")


@pytest.fixture
def http(mended: Mended) -> Iterator[HttpReceiver]:
    receiver = HttpReceiver(mended)
    receiver.start()
    yield receiver
    receiver.stop()


@pytest.fixture
def smtp(mended: Mended) -> Iterator[SmtpReceiver]:
    receiver = SmtpReceiver(mended)
    receiver.start()
    yield receiver
    receiver.stop()


def post(http: HttpReceiver, path: str, *, timeout: float = 10.0) -> requests.Response:
    return requests.post(f"{http.url}/{path}", json={}, timeout=timeout)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("ok/1", 200),
        ("busy/1", 503),
        ("limited/1", 429),
        ("limited-until/1", 429),
        ("gone/1", 404),
        ("unheard-of", 404),
    ],
)
def test_the_path_chooses_the_answer(http, path, status):
    assert post(http, path).status_code == status


def test_a_busy_server_says_when_to_come_back(http):
    assert post(http, "busy/1").headers["Retry-After"] == "1"


def test_a_limited_server_says_it_in_seconds(http):
    assert post(http, "limited/1").headers["Retry-After"] == "1"


def test_another_one_says_it_as_a_date(http):
    headers = post(http, "limited-until/1").headers

    until, answered = (parsedate_to_datetime(headers[name]) for name in ("Retry-After", "Date"))
    assert 0 <= (until - answered).total_seconds() <= 1


def test_busy_once_is_counted_for_each_address(http):
    assert [post(http, path).status_code for path in ("busy-once/1", "busy-once/2", "busy-once/1")] == [
        503,
        503,
        200,
    ]


def test_slow_answers_after_the_client_gave_up(http):
    with pytest.raises(requests.Timeout):
        post(http, "slow/1", timeout=0.2)


def test_drop_gives_no_answer_at_all(http):
    with pytest.raises(requests.ConnectionError):
        post(http, "drop/1")


@pytest.mark.parametrize("path", ["busy/1", "limited/1", "limited-until/1", "gone/1", "slow/1", "drop/1"])
def test_everything_answers_well_once_mended(http, mended, path):
    mended.set()

    assert post(http, path, timeout=2).status_code == 200


def mail(smtp: SmtpReceiver, address: str) -> int:
    """The code of the server's answer to this recipient."""
    with smtplib.SMTP("127.0.0.1", smtp.port, timeout=10) as client:
        try:
            client.sendmail("shop@shop.example", [address], "Subject: test\n\nText")
        except smtplib.SMTPRecipientsRefused as refused:
            return refused.recipients[address][0]
    return 250


@pytest.mark.parametrize(
    ("address", "code"), [("ok-1@c.example", 250), ("busy-1@c.example", 451), ("unknown-1@c.example", 550)]
)
def test_the_address_chooses_the_answer(smtp, address, code):
    assert mail(smtp, address) == code


def test_a_mailbox_busy_once_takes_the_second_mail(smtp):
    assert [mail(smtp, "busy-once-1@c.example") for _ in range(2)] == [451, 250]


@pytest.mark.parametrize("address", ["busy-1@c.example", "unknown-1@c.example"])
def test_every_mailbox_takes_mail_once_mended(smtp, mended, address):
    mended.set()

    assert mail(smtp, address) == 250
