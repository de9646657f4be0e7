"""The rules for httpx, on errors that it really raised; a local server fails for it."""

from __future__ import annotations

import httpx
import pytest

from hardening.testing.ports import free_port
from tests.helpers.failing_http import UNRESOLVABLE, FailingHttp, self_signed
from tests.helpers.verdicts import judged, judged_async, said


@pytest.fixture(scope="module")
def server():
    with FailingHttp() as server:
        yield server


def fetch(url, **options):
    with httpx.Client(trust_env=False, timeout=options.pop("timeout", 5)) as client:
        return client.get(url, **options).raise_for_status()


def test_the_status_decides(server):
    statuses = (400, 404, 408, 425, 429, 500, 501, 503, 505)
    kinds = {status: said(judged(fetch, server.answering(status))) for status in statuses}
    assert kinds == {
        status: (
            "transient" if status in {408, 425, 429, 500, 503} else "permanent",
            "http.status",
            str(status),
        )
        for status in statuses
    }


def test_the_status_decides_for_the_asynchronous_client_too(server):
    url = server.answering(503, retry_after=7)

    async def fetch_async():
        async with httpx.AsyncClient(trust_env=False) as client:
            (await client.get(url)).raise_for_status()

    verdict = judged_async(fetch_async)
    assert said(verdict) == ("transient", "http.status", "503")
    assert verdict.retry_after == 7


def test_a_refusal_that_says_when_to_come_back_is_transient(server):
    verdict = judged(fetch, server.answering(403, retry_after=7))
    assert said(verdict) == ("transient", "http.retry_after", "403")
    assert verdict.retry_after == 7


def test_no_connection_is_transient():
    assert said(judged(fetch, f"http://127.0.0.1:{free_port()}/")) == ("transient", "http.connection", "")


def test_a_name_that_does_not_resolve_is_transient():
    assert said(judged(fetch, f"http://{UNRESOLVABLE}/")) == ("transient", "http.connection", "")


def test_a_dropped_or_unreadable_answer_is_transient(server):
    for url in (
        server.answering(drop=True),
        server.answering(body=b"half", missing=4),
        server.answering(raw=b"\x00garbage\r\n\r\n"),
    ):
        assert said(judged(fetch, url)) == ("transient", "http.answer", "")


def test_a_slow_answer_is_transient(server):
    assert said(judged(fetch, server.answering(slow=True), timeout=0.05)) == ("transient", "http.timeout", "")


def test_an_untrusted_certificate_is_permanent(tmp_path):
    with FailingHttp(self_signed(tmp_path / "server.pem")) as untrusted:
        verdict = judged(fetch, untrusted.answering())
    assert said(verdict) == ("permanent", "tls.certificate", "CERTIFICATE_VERIFY_FAILED")


def test_a_bad_url_is_permanent():
    for url in ("gopher://example.org/", "example.org/", "http://host:port/"):
        assert said(judged(fetch, url)) == ("permanent", "http.url", "")


def test_a_circle_of_redirects_is_permanent(server):
    url = server.answering(302, headers={"Location": "?again"})
    assert said(judged(fetch, url, follow_redirects=True)) == ("permanent", "http.redirects", "")


def test_content_that_is_not_what_its_headers_say_is_unknown(server):
    url = server.answering(body=b"not compressed", headers={"Content-Encoding": "gzip"})
    assert said(judged(fetch, url)) == ("unknown", "http.content", "")


def test_compressed_content_that_broke_off_is_transient():
    """As httpx raises it of Zstandard, which it can read only with a package that is not installed here."""

    def decode():
        raise httpx.DecodingError("Zstandard data is incomplete")

    assert said(judged(decode)) == ("transient", "http.incomplete_content", "")


def test_a_request_that_cannot_be_sent_is_unknown(server):
    """httpx has the same error for a connection that is not in the state for it."""
    url = server.answering()
    assert said(judged(fetch, url, headers={"X-Name": "line\nbreak"})) == ("unknown", "http.protocol", "")


def test_a_stream_that_is_read_in_a_wrong_way_is_permanent(server):
    def read_too_late():
        with httpx.stream("GET", server.answering(body=b"text")) as response:
            return response.text

    assert said(judged(read_too_late)) == ("permanent", "http.request", "")
