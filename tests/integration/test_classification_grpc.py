"""The rules for grpcio, on errors that it really raised; a real server in this process aborts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import grpc
import grpc.aio
import pytest

from hardening.testing.ports import LOOPBACK, free_port
from tests.helpers.verdicts import judged, judged_async, said

PASSING = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED"}
UNKNOWN = {"UNKNOWN", "INTERNAL", "CANCELLED"}

# google.rpc.Status(code=14, message="no", details=[Any(RetryInfo(retry_delay=2.000000001 s))]), encoded.
RETRY_INFO = (
    b"\x08\x0e\x12\x02no\x1a\x32\n(type.googleapis.com/google.rpc.RetryInfo\x12\x06\n\x04\x08\x02\x10\x01"
)


class Aborting(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Aborts with the code that the method's name says; /x/SLOW never answers."""

    def __init__(self):
        self.stopping = Event()
        self.trailers = ()

    def service(self, call_details):
        name = call_details.method.rpartition("/")[2]

        def answer(request, context):
            if name == "SLOW":
                self.stopping.wait()
            context.set_trailing_metadata(self.trailers)
            context.abort(grpc.StatusCode[name] if name != "SLOW" else grpc.StatusCode.ABORTED, "no")

        def stream(request, context):
            yield b"first"
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")

        if name == "STREAM":
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture(scope="module")
def handler():
    return Aborting()


@pytest.fixture(scope="module")
def address(handler):
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, handlers=[handler])
        port = server.add_insecure_port(f"{LOOPBACK}:0")
        server.start()
        yield f"{LOOPBACK}:{port}"
        handler.stopping.set()
        server.stop(None).wait()


@pytest.fixture
def channel(address):
    with grpc.insecure_channel(address) as channel:
        yield channel


def call(channel, name, **options):
    return channel.unary_unary(f"/x/{name}")(b"", timeout=options.pop("timeout", 5), **options)


def test_the_status_code_decides(channel):
    names = [code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
    kinds = {name: said(judged(call, channel, name)) for name in names}
    assert kinds == {
        name: (
            "transient" if name in PASSING else "unknown" if name in UNKNOWN else "permanent",
            "grpc.status",
            name,
        )
        for name in names
    }


def test_a_stream_that_breaks_is_judged_by_the_code_too(channel):
    def read():
        return list(channel.unary_stream("/x/STREAM")(b"", timeout=5))

    assert said(judged(read)) == ("transient", "grpc.status", "UNAVAILABLE")


def test_the_asynchronous_client_is_judged_in_the_same_way(address):
    async def ask():
        async with grpc.aio.insecure_channel(address) as channel:
            await channel.unary_unary("/x/NOT_FOUND")(b"", timeout=5)

    assert said(judged_async(ask)) == ("permanent", "grpc.status", "NOT_FOUND")


def test_no_connection_is_transient():
    with grpc.insecure_channel(f"{LOOPBACK}:{free_port()}") as channel:
        assert said(judged(call, channel, "OK")) == ("transient", "grpc.status", "UNAVAILABLE")


def test_a_slow_answer_is_transient(channel):
    verdict = judged(call, channel, "SLOW", timeout=0.05)
    assert said(verdict) == ("transient", "grpc.status", "DEADLINE_EXCEEDED")
    waiting = channel.unary_unary("/x/SLOW").future(b"")
    assert said(judged(waiting.result, timeout=0.05)) == ("transient", "grpc.timeout", "")
    waiting.cancel()


@pytest.mark.parametrize(
    ("trailers", "seconds"),
    [
        ((("grpc-retry-pushback-ms", "1500"),), 1.5),
        ((("retry-after", "7"),), 7),
        ((("grpc-status-details-bin", RETRY_INFO),), 2.000000001),
        ((("grpc-retry-pushback-ms", "-1"),), None),
        ((("grpc-status-details-bin", b"\x1a\xff\xff"),), None),
        ((("grpc-status-details-bin", b"\xff" * 20),), None),
        ((), None),
    ],
)
def test_the_wait_that_a_server_asks_for_is_read(channel, handler, trailers, seconds):
    handler.trailers = trailers
    assert judged(call, channel, "UNAVAILABLE").retry_after == seconds
    handler.trailers = ()


def test_an_error_without_a_status_is_unknown():
    """grpc.RpcError itself has none of the methods."""

    def fail():
        raise grpc.RpcError

    assert said(judged(fail)) == ("unknown", "grpc.status", "")
