"""The rules for requests, on errors that it really raised; a local server fails for it."""

from __future__ import annotations

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from hardening.testing.ports import free_port
from tests.helpers.failing_http import UNRESOLVABLE, FailingHttp, self_signed
from tests.helpers.verdicts import judged, said


@pytest.fixture(scope="module")
def server():
    with FailingHttp() as server:
        yield server


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    return tmp_path_factory.mktemp("tls") / "server.pem"


@pytest.fixture(scope="module")
def untrusted(pem):
    with FailingHttp(self_signed(pem)) as server:
        yield server


def fetch(url, **options):
    with requests.get(url, **{"timeout": 5, **options}) as response:
        response.raise_for_status()
        return response


def fetch_json(url):
    return fetch(url).json()


def test_the_status_decides(server):
    statuses = (400, 404, 408, 409, 422, 425, 429, 500, 501, 502, 503, 504, 505)
    kinds = {status: said(judged(fetch, server.answering(status))) for status in statuses}
    passing = {408, 425, 429, 500, 502, 503, 504}
    assert kinds == {
        status: ("transient" if status in passing else "permanent", "http.status", str(status))
        for status in statuses
    }


def test_retry_after_is_read(server):
    assert judged(fetch, server.answering(503, retry_after=7)).retry_after == 7
    date = {"Date": "Mon, 30 Nov 2026 12:00:00 GMT"}
    url = server.answering(429, retry_after="Mon, 30 Nov 2026 12:01:00 GMT", headers=date)
    assert judged(fetch, url).retry_after == 60


def test_a_refusal_that_says_when_to_come_back_is_transient(server):
    for status in (403, 404, 413):
        verdict = judged(fetch, server.answering(status, retry_after=7))
        assert said(verdict) == ("transient", "http.retry_after", str(status))
        assert verdict.retry_after == 7
    assert said(judged(fetch, server.answering(403, retry_after="soon")))[0] == "transient"


def test_a_permanent_status_asks_for_no_wait(server):
    verdict = judged(fetch, server.answering(501, retry_after=7))
    assert said(verdict) == ("permanent", "http.status", "501")
    assert verdict.retry_after is None


def test_no_connection_is_transient():
    assert said(judged(fetch, f"http://127.0.0.1:{free_port()}/")) == ("transient", "http.connection", "")


def test_a_name_that_does_not_resolve_is_transient():
    assert said(judged(fetch, f"http://{UNRESOLVABLE}/")) == ("transient", "http.connection", "")


def test_a_dropped_connection_is_transient(server):
    assert said(judged(fetch, server.answering(drop=True))) == ("transient", "http.connection", "")


def test_a_slow_answer_is_transient(server):
    assert said(judged(fetch, server.answering(slow=True), timeout=0.05)) == ("transient", "http.timeout", "")


def test_an_answer_that_breaks_off_is_transient(server):
    url = server.answering(body=b"half", missing=4)
    assert said(judged(fetch, url)) == ("transient", "http.answer", "")


def test_an_answer_that_is_no_http_is_transient(server):
    assert said(judged(fetch, server.answering(raw=b"\x00garbage\r\n\r\n")))[0] == "transient"


def test_an_untrusted_certificate_is_permanent(untrusted):
    verdict = judged(fetch, untrusted.answering())
    assert said(verdict) == ("permanent", "tls.certificate", "CERTIFICATE_VERIFY_FAILED")


def test_a_certificate_of_another_name_is_permanent(untrusted, pem):
    class Pinned(HTTPAdapter):
        """Has urllib3 compare the name, which raises an error of its own."""

        def init_poolmanager(self, *args, **options):
            super().init_poolmanager(*args, assert_hostname="elsewhere.test", **options)

    with requests.Session() as session:
        session.mount("https://", Pinned())
        verdict = judged(session.get, untrusted.answering(), timeout=5, verify=str(pem))
    assert said(verdict) == ("permanent", "tls.certificate", "CERTIFICATE_VERIFY_FAILED")


def test_tls_to_a_server_that_speaks_none_is_transient(server):
    url = server.answering().replace("http://", "https://")
    assert said(judged(fetch, url)) == ("transient", "http.connection", "")


def test_a_bad_url_is_permanent():
    for url in ("example.org/", "gopher://example.org/", "http://", "http://[::1/"):
        assert said(judged(fetch, url)) == ("permanent", "http.url", "")


def test_a_circle_of_redirects_is_permanent(server):
    url = server.answering(302, headers={"Location": "?again"})
    assert said(judged(fetch, url)) == ("permanent", "http.redirects", "")


def test_content_that_is_not_what_it_should_be_is_unknown(server):
    assert said(judged(fetch_json, server.answering(body=b"<html>"))) == ("unknown", "http.content", "")
    url = server.answering(body=b"not compressed", headers={"Content-Encoding": "gzip"})
    assert said(judged(fetch, url)) == ("unknown", "http.content", "")


def test_a_request_that_cannot_be_sent_is_permanent(server):
    verdict = judged(fetch, server.answering(), headers={"X-Name": "line\nbreak"})
    assert said(verdict) == ("permanent", "http.request", "")
    verdict = judged(requests.post, server.answering(), json={"rate": float("nan")}, timeout=5)
    assert said(verdict) == ("permanent", "http.request", "")


def test_retries_in_vain_are_judged_by_the_last_status(server):
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=Retry(1, status_forcelist=[404, 503])))
        busy = judged(session.get, server.answering(503), timeout=5)
        gone = judged(session.get, server.answering(404), timeout=5)
    assert said(busy) == ("transient", "http.retries", "503")
    assert said(gone) == ("permanent", "http.retries", "404")
