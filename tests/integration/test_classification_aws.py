"""The rules for botocore, on errors that it really raised; a local server fails for it."""

from __future__ import annotations

import json

import pytest
from botocore.config import Config
from botocore.session import Session

from hardening.testing.ports import LOOPBACK, free_port
from tests.helpers.failing_http import FailingHttp, self_signed
from tests.helpers.verdicts import judged, said


@pytest.fixture(scope="module")
def server():
    with FailingHttp() as server:
        yield server


@pytest.fixture(scope="module")
def session():
    """Loads the services' models once, and neither a profile nor credentials of this machine."""
    session = Session()
    session.set_config_variable("config_file", "/dev/null")
    session.set_config_variable("credentials_file", "/dev/null")
    session.set_credentials("key", "secret")
    return session


@pytest.fixture
def ask(session):
    """Call one operation of a service at a URL, without botocore's own retries."""
    clients = []

    def ask(url, service="dynamodb", operation="list_tables", **parameters):
        config = Config(retries={"total_max_attempts": 1}, read_timeout=0.1 if "slow" in url else 5)
        client = session.create_client(
            service, "us-east-1", endpoint_url=url.removesuffix("#slow"), config=config
        )
        clients.append(client)
        return getattr(client, operation)(**parameters)

    yield ask
    for client in clients:
        client.close()


def error(server, status, code, **options):
    body = json.dumps({"__type": f"com.amazonaws#{code}", "message": "no"}).encode()
    return server.answering(status, body=body, **options)


def test_throttling_and_conflicts_are_transient_though_their_status_is_400(server, ask):
    for code in (
        "ThrottlingException",
        "ProvisionedThroughputExceededException",
        "TransactionConflictException",
        "ConditionalRequestConflict",
        "ResourceConflictException",
        "ResourceInUseException",
        "ResourceInUseFault",
        "AWS.SimpleQueueService.QueueDeletedRecently",
        "DependencyViolation",
        "OperationAborted",
    ):
        assert said(judged(ask, error(server, 400, code))) == ("transient", "aws.code", code)


def test_credentials_that_ran_out_and_a_clock_that_is_wrong_are_transient(server, ask):
    for status, code in (
        (400, "ExpiredToken"),
        (403, "ExpiredTokenException"),
        (400, "RequestExpired"),
        (403, "RequestTimeTooSkewed"),
        (400, "IDPCommunicationError"),
    ):
        assert said(judged(ask, error(server, status, code))) == ("transient", "aws.code", code)


def test_a_body_that_did_not_arrive_whole_is_transient(server, ask):
    for code in ("BadDigest", "IncompleteBody"):
        assert said(judged(ask, error(server, 400, code))) == ("transient", "aws.code", code)


def test_a_refusal_that_says_when_to_come_back_is_transient(server, ask):
    verdict = judged(ask, error(server, 403, "AccessDeniedException", retry_after=7))
    assert said(verdict) == ("transient", "aws.retry_after", "AccessDeniedException")
    assert verdict.retry_after == 7


def test_what_the_service_refuses_is_permanent(server, ask):
    for status, code in ((400, "ValidationException"), (400, "AccessDeniedException"), (404, "NotFound")):
        assert said(judged(ask, error(server, status, code))) == ("permanent", "aws.refused", code)


def test_a_server_in_trouble_is_transient(server, ask):
    for status, code in ((500, "OutOfOrder"), (503, "Closed"), (429, "Slower")):
        assert said(judged(ask, error(server, status, code))) == ("transient", "aws.unavailable", code)


def test_a_cancelled_transaction_is_unknown(server, ask):
    verdict = judged(ask, error(server, 400, "TransactionCanceledException"))
    assert said(verdict) == ("unknown", "aws.code", "TransactionCanceledException")


def test_retry_after_is_read_in_seconds_and_in_milliseconds(server, ask):
    assert judged(ask, error(server, 503, "Closed", retry_after=7)).retry_after == 7
    headers = {"x-amz-retry-after": "1500"}
    assert judged(ask, error(server, 400, "ThrottlingException", headers=headers)).retry_after == 1.5


def test_an_answer_without_a_body_is_judged_by_its_status(server, ask):
    head = {"service": "s3", "operation": "head_object", "Bucket": "bucket", "Key": "key"}
    assert said(judged(ask, server.answering(404), **head)) == ("permanent", "aws.refused", "404")
    assert said(judged(ask, server.answering(503), **head)) == ("transient", "aws.unavailable", "503")


def test_no_connection_a_broken_one_and_a_slow_answer_are_transient(server, ask):
    for url in (
        f"http://{LOOPBACK}:{free_port()}",
        server.answering(drop=True),
        server.answering(slow=True) + "#slow",
    ):
        assert said(judged(ask, url)) == ("transient", "aws.connection", "")


def test_a_body_that_breaks_off_is_transient(server, ask):
    def download():
        url = server.answering(body=b"half", missing=4)
        return ask(url, "s3", "get_object", Bucket="bucket", Key="key")["Body"].read()

    assert said(judged(download)) == ("transient", "aws.connection", "")


def test_an_untrusted_certificate_is_permanent(ask, tmp_path):
    with FailingHttp(self_signed(tmp_path / "server.pem")) as untrusted:
        verdict = judged(ask, untrusted.answering())
    assert said(verdict) == ("permanent", "aws.certificate", "CERTIFICATE_VERIFY_FAILED")


def test_missing_credentials_or_a_missing_region_are_permanent(server, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    session = Session()
    session.set_config_variable("config_file", "/dev/null")
    session.set_config_variable("credentials_file", "/dev/null")
    client = session.create_client("dynamodb", "us-east-1", endpoint_url=server.answering())
    assert said(judged(client.list_tables)) == ("permanent", "aws.configuration", "")
    client.close()
    assert said(judged(session.create_client, "dynamodb")) == ("permanent", "aws.configuration", "")


def test_parameters_that_do_not_fit_are_permanent(server, ask):
    for parameters in ({"TableName": "orders"}, {"TableName": 5}):
        verdict = judged(ask, server.answering(), operation="get_item", **parameters)
        assert said(verdict) == ("permanent", "aws.parameters", "")


def test_a_waiter_that_gave_up_is_transient_and_one_that_saw_the_end_unknown(server, session):
    def wait(url):
        client = session.create_client("s3", "us-east-1", endpoint_url=url)
        try:
            client.get_waiter("bucket_exists").wait(Bucket="bucket", WaiterConfig={"MaxAttempts": 1})
        finally:
            client.close()

    assert said(judged(wait, server.answering(404))) == ("transient", "aws.waiter", "")
    assert judged(wait, server.answering(400)).kind == "unknown"
