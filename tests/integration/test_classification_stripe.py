"""The rules for stripe, on errors that it really raised; a local server stands in for its API."""

from __future__ import annotations

import json

import pytest
import stripe

from hardening.testing.ports import LOOPBACK, free_port
from tests.helpers.failing_http import FailingHttp, self_signed
from tests.helpers.verdicts import judged, said


@pytest.fixture(scope="module")
def server():
    with FailingHttp() as server:
        yield server


def charge(url, *, timeout=5.0):
    http = stripe.RequestsClient(timeout=timeout)
    client = stripe.StripeClient(
        "sk_test_dummy", base_addresses={"api": url}, http_client=http, max_network_retries=0
    )
    try:
        return client.v1.charges.retrieve("ch_1")
    finally:
        http.close()


def error(server, status, **parts):
    options = {name: parts.pop(name) for name in ("retry_after",) if name in parts}
    return server.answering(
        status, body=json.dumps({"error": {"message": "no", **parts}}).encode(), **options
    )


def test_a_refused_request_is_permanent(server):
    for status, code in ((402, "card_declined"), (400, "parameter_invalid"), (404, "resource_missing")):
        verdict = judged(charge, error(server, status, code=code))
        assert said(verdict) == ("permanent", "stripe.refused", code)
    for status in (401, 403):
        assert said(judged(charge, error(server, status))) == ("permanent", "stripe.refused", str(status))


def test_a_reused_idempotency_key_is_permanent(server):
    verdict = judged(charge, error(server, 400, type="idempotency_error"))
    assert said(verdict) == ("permanent", "stripe.refused", "400")


def test_too_many_requests_are_transient(server):
    verdict = judged(charge, error(server, 429, retry_after=7))
    assert said(verdict) == ("transient", "stripe.rate_limit", "429")
    assert verdict.retry_after == 7


def test_another_request_in_the_way_is_transient_whatever_the_status(server):
    for status, code in ((429, "lock_timeout"), (409, "idempotency_key_in_use"), (400, "lock_timeout")):
        verdict = judged(charge, error(server, status, code=code))
        assert said(verdict) == ("transient", "stripe.busy", code)


def test_a_card_whose_network_stumbled_is_transient(server):
    verdict = judged(charge, error(server, 402, code="processing_error"))
    assert said(verdict) == ("transient", "stripe.busy", "processing_error")


def test_a_server_in_trouble_is_transient(server):
    assert said(judged(charge, error(server, 500))) == ("transient", "stripe.status", "500")
    assert said(judged(charge, server.answering(502, body=b"{}"))) == ("transient", "stripe.status", "502")


def test_an_answer_that_is_no_json_is_unknown(server):
    assert said(judged(charge, server.answering(200, body=b"<html>"))) == ("unknown", "stripe.status", "200")


def test_no_connection_a_broken_one_and_a_slow_answer_are_transient(server):
    expected = ("transient", "stripe.connection", "")
    assert said(judged(charge, f"http://{LOOPBACK}:{free_port()}")) == expected
    assert said(judged(charge, server.answering(drop=True))) == expected
    assert said(judged(charge, server.answering(slow=True), timeout=0.05)) == expected


def test_an_untrusted_certificate_is_permanent(tmp_path):
    with FailingHttp(self_signed(tmp_path / "server.pem")) as untrusted:
        verdict = judged(charge, untrusted.answering())
    assert verdict.kind == "permanent"
    assert verdict.rule == "stripe.certificate"


def test_a_webhook_with_a_wrong_signature_is_permanent():
    verdict = judged(stripe.Webhook.construct_event, "{}", "t=1,v1=wrong", "whsec_dummy")
    assert said(verdict) == ("permanent", "stripe.refused", "")


def test_an_error_of_oauth_is_permanent(server):
    body = json.dumps({"error": "invalid_grant", "error_description": "used"}).encode()
    assert said(judged(charge, server.answering(400, body=body)))[:2] == ("permanent", "stripe.refused")
