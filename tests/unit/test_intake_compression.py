"""A body expands to so much and no more, before anybody decides about it; all others are as they were."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any

import pytest
from kombu import compression

from hardening.core.letter import COMPRESSED
from hardening.intake.compression import ExpandsTooFar, bound_decompression
from tests.helpers.hardened_apps import EVENTS, LETTERS, SINK, hardened_app
from tests.unit.test_intake_consumer import OurConsumer, message

pytestmark = pytest.mark.usefixtures("isolated", "recording")

MOST = 100_000
DECODERS: Any = vars(compression)["_decoders"]
KINDS = [("gzip", zlib), ("bzip2", bz2), ("lzma", lzma)]


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_decoders", dict(DECODERS))
    bound_decompression(10)
    bound_decompression(MOST)


@pytest.mark.parametrize(("name", "module"), KINDS)
@pytest.mark.parametrize("size", [0, 1, MOST - 1, MOST])
def test_a_body_up_to_the_limit_is_what_was_compressed(name: str, module: Any, size: int) -> None:
    assert compression.decompress(module.compress(b"x" * size), name) == b"x" * size


@pytest.mark.parametrize(("name", "module"), KINDS)
@pytest.mark.parametrize("parts", [(MOST + 1,), (50 * MOST,), (MOST, 1)])
def test_one_beyond_it_is_refused(name: str, module: Any, parts: tuple[int, ...]) -> None:
    body = b"".join(module.compress(b"x" * size) for size in parts)

    with pytest.raises(ExpandsTooFar):
        compression.decompress(body, name)


@pytest.mark.parametrize(("name", "module"), KINDS)
def test_one_that_is_cut_off_is_an_error(name: str, module: Any) -> None:
    with pytest.raises(Exception, match=r".") as caught:
        compression.decompress(module.compress(b"a body of some length")[:-4], name)
    assert not isinstance(caught.value, ExpandsTooFar)


def test_a_decompressor_of_the_projects_own_stays() -> None:
    def own(body: bytes) -> bytes:
        return b"own"

    compression.register(zlib.compress, own, "application/x-gzip")
    bound_decompression(MOST)

    assert compression.decompress(b"", "gzip") == b"own"


def test_a_message_that_expands_too_far_ends_as_oversized_with_what_was_sent(settings: Any) -> None:
    settings.HARDENING = {**SINK, "INTAKE": {"MOST_BYTES": MOST}}
    sent = zlib.compress(b"0" * (MOST + 1))
    consumer = OurConsumer(hardened_app())
    consumer.create_task_handler()
    made = message({"task": "a task", "id": "an id", "compression": "application/x-gzip"}, sent)
    [(_, exc, _)] = made.errors

    consumer.on_decode_error(made, exc)

    [letter] = LETTERS
    assert (letter.reason, letter.payload.body) == ("oversized", sent)
    assert letter.payload.properties[COMPRESSED] is True
    assert str(MOST) in letter.last_attempt.message
    assert EVENTS == ["letter oversized", "backend FAILURE", "ack 7"]
