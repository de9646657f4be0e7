"""The rules for aiohttp, on errors that it really raised; a local server fails for it."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from hardening.testing.ports import free_port
from tests.helpers.failing_http import UNRESOLVABLE, FailingHttp, self_signed
from tests.helpers.verdicts import judged_async, said


@pytest.fixture(scope="module")
def server():
    with FailingHttp() as server:
        yield server


async def last_connection_closed():
    """A connection whose certificate it refused aiohttp leaves to close by itself."""
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    while len(selector.get_map()) > 1:  # One is the loop's own.
        await asyncio.sleep(0.001)


def verdict_on(url, *, json=False, raise_for_status=True, **options):
    async def fetch():
        try:
            async with aiohttp.ClientSession() as session, session.get(url, **options) as response:
                if raise_for_status:
                    response.raise_for_status()
                return await (response.json() if json else response.read())
        finally:
            await last_connection_closed()

    return judged_async(fetch)


def test_the_status_decides(server):
    statuses = (400, 404, 408, 425, 429, 500, 501, 503, 505)
    kinds = {status: said(verdict_on(server.answering(status))) for status in statuses}
    assert kinds == {
        status: (
            "transient" if status in {408, 425, 429, 500, 503} else "permanent",
            "http.status",
            str(status),
        )
        for status in statuses
    }


def test_retry_after_is_read(server):
    assert verdict_on(server.answering(503, retry_after=7)).retry_after == 7


def test_a_refusal_that_says_when_to_come_back_is_transient(server):
    html = {"Content-Type": "text/html"}
    for verdict in (
        verdict_on(server.answering(403, retry_after=7)),
        verdict_on(server.answering(403, retry_after=7, headers=html), json=True, raise_for_status=False),
    ):
        assert said(verdict) == ("transient", "http.retry_after", "403")
        assert verdict.retry_after == 7


def test_no_connection_is_transient():
    assert said(verdict_on(f"http://127.0.0.1:{free_port()}/")) == ("transient", "http.connection", "")


def test_a_name_that_does_not_resolve_is_transient():
    assert said(verdict_on(f"http://{UNRESOLVABLE}/")) == ("transient", "http.connection", "")


def test_a_dropped_connection_is_transient(server):
    assert said(verdict_on(server.answering(drop=True))) == ("transient", "http.connection", "")


def test_an_answer_that_breaks_off_is_transient(server):
    assert said(verdict_on(server.answering(body=b"half", missing=4))) == ("transient", "http.answer", "")


def test_an_answer_that_is_no_http_is_transient_though_aiohttp_says_400(server):
    verdict = verdict_on(server.answering(raw=b"\x00garbage\r\n\r\n"))
    assert said(verdict) == ("transient", "http.unreadable_answer", "")


def test_a_slow_answer_is_transient(server):
    timeout = aiohttp.ClientTimeout(sock_read=0.05)
    verdict = verdict_on(server.answering(slow=True), timeout=timeout)
    assert said(verdict) == ("transient", "http.timeout", "")


def test_a_request_that_takes_too_long_in_all_is_transient(server):
    """aiohttp raises the builtin TimeoutError for it."""
    verdict = verdict_on(server.answering(slow=True), timeout=aiohttp.ClientTimeout(total=0.05))
    assert verdict.kind == "transient"


def test_an_untrusted_certificate_is_permanent(tmp_path):
    with FailingHttp(self_signed(tmp_path / "server.pem")) as untrusted:
        verdict = verdict_on(untrusted.answering())
        pinned = verdict_on(untrusted.answering(), ssl=aiohttp.Fingerprint(b"\0" * 32))
    assert said(verdict) == ("permanent", "tls.certificate", "CERTIFICATE_VERIFY_FAILED")
    assert said(pinned) == ("permanent", "tls.fingerprint", "")


def test_tls_to_a_server_that_speaks_none_is_transient(server):
    url = server.answering().replace("http://", "https://")
    assert said(verdict_on(url)) == ("transient", "http.connection", "")


def test_a_bad_url_is_permanent():
    for url in ("gopher://example.org/", "http://", "example.org"):
        assert said(verdict_on(url)) == ("permanent", "http.url", "")


def test_a_circle_of_redirects_is_permanent(server):
    url = server.answering(302, headers={"Location": "?again"})
    assert said(verdict_on(url)) == ("permanent", "http.redirects", "")


def test_a_page_in_the_place_of_json_is_unknown_unless_its_status_decides(server):
    html = {"Content-Type": "text/html"}
    page = verdict_on(server.answering(headers=html), json=True)
    assert said(page) == ("unknown", "http.content", "200")
    gone = verdict_on(server.answering(404, headers=html), json=True, raise_for_status=False)
    assert said(gone) == ("permanent", "http.content", "404")
    url = server.answering(503, headers=html, retry_after=7)
    busy = verdict_on(url, json=True, raise_for_status=False)
    assert said(busy) == ("transient", "http.content", "503")
    assert busy.retry_after == 7
