"""The rules for urllib3, urllib, http.client and ssl, on errors that they really raised."""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.error
import urllib.request

import pytest
import urllib3
from urllib3.util import Retry

from hardening.testing.ports import LOOPBACK, free_port
from tests.helpers.failing_http import UNRESOLVABLE, FailingHttp, self_signed
from tests.helpers.verdicts import judged, said


@pytest.fixture(scope="module")
def server():
    with FailingHttp() as server:
        yield server


@pytest.fixture(scope="module")
def untrusted(tmp_path_factory):
    with FailingHttp(self_signed(tmp_path_factory.mktemp("tls") / "server.pem")) as server:
        yield server


def refused():
    return f"http://{LOOPBACK}:{free_port()}/"


def pooled(url, **options):
    """With urllib3; without retries its own errors come out as they are."""
    with urllib3.PoolManager() as pool:
        return pool.request("GET", url, **{"retries": False, "timeout": 5, **options}).data


def opened(url, **options):
    """With urllib.request; an HTTPError is also the answer, to be closed."""
    try:
        with urllib.request.urlopen(url, **{"timeout": 5, **options}) as response:
            return response.read()
    except urllib.error.HTTPError as exc:
        exc.close()
        raise


def test_urllib3_without_a_connection_is_transient(server):
    for url in (refused(), f"http://{UNRESOLVABLE}/"):
        assert said(judged(pooled, url)) == ("transient", "http.connection", "")


def test_urllib3_with_a_broken_answer_is_transient(server):
    for url in (server.answering(drop=True), server.answering(body=b"half", missing=4)):
        assert said(judged(pooled, url)) == ("transient", "http.answer", "")


def test_urllib3_with_a_slow_answer_is_transient(server):
    url = server.answering(slow=True)
    assert said(judged(pooled, url, timeout=0.05)) == ("transient", "http.timeout", "")


def test_urllib3_with_an_untrusted_certificate_is_permanent(untrusted):
    expected = ("permanent", "tls.certificate", "CERTIFICATE_VERIFY_FAILED")
    assert said(judged(pooled, untrusted.answering())) == expected
    assert said(judged(pooled, untrusted.answering(), retries=0)) == expected


def test_urllib3_with_another_failure_of_tls_is_transient(server):
    url = server.answering().replace("http://", "https://")
    assert said(judged(pooled, url)) == ("transient", "http.connection", "")


def test_urllib3_that_gave_up_is_judged_by_what_it_met_last(server):
    retries = Retry(1, redirect=1, status_forcelist=[404, 503])
    busy = judged(pooled, server.answering(503), retries=retries)
    gone = judged(pooled, server.answering(404), retries=retries)
    circle = judged(pooled, server.answering(302, headers={"Location": "?again"}), retries=retries)
    unconnected = judged(pooled, refused(), retries=0)
    assert said(busy) == ("transient", "http.retries", "503")
    assert said(gone) == ("permanent", "http.retries", "404")
    assert said(circle) == ("permanent", "http.retries", "TooManyRedirects")
    assert said(unconnected) == ("transient", "http.retries", "NewConnectionError")


def test_urllib3_with_a_bad_url_is_permanent():
    for url in ("gopher://example.org/", "http://"):
        assert said(judged(pooled, url)) == ("permanent", "http.url", "")


def test_urllib3_with_content_that_is_not_compressed_as_it_says_is_unknown(server):
    url = server.answering(body=b"not compressed", headers={"Content-Encoding": "gzip"})
    assert said(judged(pooled, url)) == ("unknown", "http.content", "")


def test_urllib3_with_compressed_content_that_broke_off_is_transient():
    """As urllib3 raises it of Zstandard, which it can read only with a package that is not installed here."""

    def decode():
        raise urllib3.exceptions.DecodeError("Zstandard data is incomplete")

    assert said(judged(decode)) == ("transient", "http.incomplete_content", "")


def test_urllib3_with_a_pool_in_full_use_is_transient(server):
    with urllib3.HTTPConnectionPool(LOOPBACK, server.port, maxsize=1, block=True) as pool:
        held = pool.urlopen("GET", "/", preload_content=False)
        verdict = judged(pool.urlopen, "GET", "/", pool_timeout=0.01)
        held.drain_conn()
        held.release_conn()
    assert said(verdict) == ("transient", "http.connection", "")


def test_urlopen_is_judged_by_the_status(server):
    busy = judged(opened, server.answering(503, retry_after=7))
    assert said(busy) == ("transient", "http.status", "503")
    assert busy.retry_after == 7
    assert said(judged(opened, server.answering(404))) == ("permanent", "http.status", "404")
    later = judged(opened, server.answering(403, retry_after=7))
    assert said(later) == ("transient", "http.retry_after", "403")
    assert later.retry_after == 7


def test_urlopen_without_a_connection_is_judged_by_the_number_of_its_error():
    assert said(judged(opened, refused())) == ("transient", "http.urlopen", "ECONNREFUSED")
    assert judged(opened, f"http://{UNRESOLVABLE}/").kind == "transient"
    assert said(judged(opened, "file:///no/such/file")) == ("permanent", "http.urlopen", "ENOENT")


def test_urlopen_with_an_untrusted_certificate_is_permanent(untrusted):
    verdict = judged(opened, untrusted.answering())
    assert said(verdict) == ("permanent", "tls.certificate", "CERTIFICATE_VERIFY_FAILED")


def test_urlopen_with_a_bad_url_is_permanent():
    assert said(judged(opened, "gopher://example.org/")) == ("permanent", "http.urlopen", "URL")
    assert said(judged(opened, "http:///path")) == ("permanent", "http.urlopen", "URL")
    assert said(judged(opened, "http://host:port/")) == ("permanent", "http.url", "")


def test_urlopen_with_a_broken_answer_is_transient(server):
    for url in (
        server.answering(drop=True),
        server.answering(body=b"half", missing=4),
        server.answering(raw=b"\x00garbage\r\n\r\n"),
    ):
        assert said(judged(opened, url)) == ("transient", "http.answer", "")


def test_a_download_that_breaks_off_is_transient(server, tmp_path):
    url = server.answering(body=b"half", missing=4)
    verdict = judged(urllib.request.urlretrieve, url, tmp_path / "file")
    assert said(verdict) == ("transient", "http.answer", "")


def test_a_connection_of_http_client_in_the_middle_of_another_request_is_transient(server):
    connection = http.client.HTTPConnection(LOOPBACK, server.port)
    try:
        assert said(judged(connection.getresponse)) == ("transient", "http.stale_connection", "")
        connection.putrequest("GET", "/")
        assert said(judged(connection.putrequest, "GET", "/")) == ("transient", "http.stale_connection", "")
    finally:
        connection.close()


def test_a_header_of_http_client_without_a_request_is_permanent():
    connection = http.client.HTTPConnection(LOOPBACK)
    assert said(judged(connection.putheader, "X-Name", "value")) == ("permanent", "http.request", "")


def test_a_certificate_that_a_bare_tls_client_refuses_is_permanent(untrusted):
    def shake_hands():
        with socket.create_connection((LOOPBACK, untrusted.port)) as connection:
            ssl.create_default_context().wrap_socket(connection, server_hostname=LOOPBACK)

    assert said(judged(shake_hands)) == ("permanent", "tls.certificate", "CERTIFICATE_VERIFY_FAILED")


def test_tls_to_a_server_that_speaks_none_is_transient_though_its_errno_is_that_of_eperm(server):
    def shake_hands():
        with socket.create_connection((LOOPBACK, server.port)) as connection:
            ssl.create_default_context().wrap_socket(connection, server_hostname=LOOPBACK)

    verdict = judged(shake_hands)
    assert (verdict.kind, verdict.rule) == ("transient", "tls.connection")
    assert verdict.code
