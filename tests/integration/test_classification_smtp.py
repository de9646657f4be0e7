"""The rules for smtplib, on errors that it really raised; a local server refuses."""

from __future__ import annotations

import smtplib
import socket
import ssl
from threading import Thread

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from django.core.mail import EmailMessage, get_connection

from hardening.testing.ports import LOOPBACK, free_port
from tests.helpers.failing_http import self_signed
from tests.helpers.verdicts import judged, said


class Refusals:
    """Replies with what the local part of an address says: 451@shop is refused with 451."""

    async def handle_EHLO(self, server, session, envelope, hostname, responses):  # noqa: N802
        session.host_name = hostname
        return ["550 go away"] if hostname == "550" else responses

    async def handle_HELO(self, server, session, envelope, hostname):  # noqa: N802
        return "550 go away"

    async def handle_MAIL(self, server, session, envelope, address, mail_options):  # noqa: N802
        return self._reply(envelope, "mail_from", address)

    async def handle_RCPT(self, server, session, envelope, address, rcpt_options):  # noqa: N802
        if address.startswith("data-"):
            envelope.rcpt_tos.append(address)
            return "250 OK"
        reply = self._reply(envelope, None, address)
        if reply.startswith("250"):
            envelope.rcpt_tos.append(address)
        return reply

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        return f"{envelope.rcpt_tos[0].removeprefix('data-').partition('@')[0]} no"

    def _reply(self, envelope, name, address):
        code = address.partition("@")[0]
        if code.isdigit():
            return f"{code} no"
        if name:
            setattr(envelope, name, address)
        return "250 OK"


def log_in(server, session, envelope, mechanism, data):
    return AuthResult(success=False, handled=False, message=f"{data.login.decode()} no")


def serve(**options):
    return Controller(Refusals(), hostname=LOOPBACK, port=free_port(), server_hostname="shop", **options)


@pytest.fixture(scope="module")
def server():
    controller = serve(authenticator=log_in, auth_require_tls=False)
    controller.start()
    yield controller
    controller.stop(no_assert=True)


@pytest.fixture
def client(server):
    with smtplib.SMTP(LOOPBACK, server.port, local_hostname="client", timeout=5) as client:
        yield client


def greeted_with(greeting):
    """The port of a server that sees one client off with this greeting."""
    listener = socket.create_server((LOOPBACK, 0))

    def run():
        with listener:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(greeting)

    Thread(target=run, daemon=True).start()
    return listener.getsockname()[1]


def test_a_recipient_refused_for_now_is_transient_and_for_ever_permanent(client):
    for code, kind in (("450", "transient"), ("451", "transient"), ("550", "permanent")):
        verdict = judged(client.sendmail, "me@shop", [f"{code}@shop"], "text")
        assert said(verdict) == (kind, "smtp.recipients", code)


def test_of_several_refused_recipients_one_that_may_be_taken_later_is_enough(client):
    verdict = judged(client.sendmail, "me@shop", ["550@shop", "452@shop", "553@shop"], "text")
    assert said(verdict) == ("transient", "smtp.recipients", "452")
    verdict = judged(client.sendmail, "me@shop", ["550@shop", "553@shop"], "text")
    assert said(verdict) == ("permanent", "smtp.recipients", "550")


def test_a_refused_sender_is_judged_by_the_code(client):
    assert said(judged(client.sendmail, "452@shop", ["you@shop"], "text")) == (
        "transient",
        "smtp.reply",
        "452",
    )
    assert said(judged(client.sendmail, "553@shop", ["you@shop"], "text")) == (
        "permanent",
        "smtp.reply",
        "553",
    )


def test_refused_data_are_judged_by_the_code(client):
    later = judged(client.sendmail, "me@shop", ["data-451@shop"], "text")
    never = judged(client.sendmail, "me@shop", ["data-554@shop"], "text")
    assert said(later) == ("transient", "smtp.reply", "451")
    assert said(never) == ("permanent", "smtp.reply", "554")


def test_a_wrong_password_is_permanent_and_a_login_that_failed_for_now_transient(client):
    assert said(judged(client.login, "535", "secret")) == ("permanent", "smtp.reply", "535")
    assert said(judged(client.login, "454", "secret")) == ("transient", "smtp.reply", "454")


def test_a_server_that_does_not_want_to_talk_is_judged_by_the_code():
    busy = judged(smtplib.SMTP, LOOPBACK, greeted_with(b"421 too many connections\r\n"), timeout=5)
    gone = judged(smtplib.SMTP, LOOPBACK, greeted_with(b"554 no\r\n"), timeout=5)
    assert said(busy) == ("transient", "smtp.reply", "421")
    assert said(gone) == ("permanent", "smtp.reply", "554")


def test_a_refused_hello_is_judged_by_the_code(server):
    with smtplib.SMTP(LOOPBACK, server.port, local_hostname="550", timeout=5) as client:
        verdict = judged(client.sendmail, "me@shop", ["you@shop"], "text")
    assert said(verdict) == ("permanent", "smtp.reply", "550")


def test_a_broken_connection_is_transient():
    verdict = judged(smtplib.SMTP, LOOPBACK, greeted_with(b""), timeout=5)
    assert said(verdict) == ("transient", "smtp.connection", "")


def test_no_connection_is_transient():
    assert judged(smtplib.SMTP, LOOPBACK, free_port(), timeout=5).kind == "transient"


def test_a_command_that_the_server_does_not_know_is_permanent(client):
    client.ehlo()
    assert said(judged(client.starttls)) == ("permanent", "smtp.not_supported", "")


def test_an_untrusted_certificate_is_permanent(tmp_path):
    controller = serve(tls_context=self_signed(tmp_path / "server.pem"))
    controller.start()
    try:
        with smtplib.SMTP(LOOPBACK, controller.port, local_hostname="client", timeout=5) as client:
            verdict = judged(client.starttls, context=ssl.create_default_context())
            client.close()
    finally:
        controller.stop(no_assert=True)
    assert said(verdict) == ("permanent", "tls.certificate", "CERTIFICATE_VERIFY_FAILED")


def test_mail_sent_with_django_is_judged_in_the_same_way(server):
    def send(recipient):
        connection = get_connection(
            "django.core.mail.backends.smtp.EmailBackend", host=LOOPBACK, port=server.port
        )
        EmailMessage("subject", "text", "me@shop", [recipient], connection=connection).send()

    assert said(judged(send, "451@shop")) == ("transient", "smtp.recipients", "451")
    assert said(judged(send, "550@shop")) == ("permanent", "smtp.recipients", "550")
