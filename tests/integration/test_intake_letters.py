"""Letters of messages that are no task: shown, exported byte for byte, repaired and sent."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from django.core.management import CommandError, call_command
from kombu import Producer, Queue, compression

from dlq.models import DeadLetter
from dlq.sink import DatabaseSink
from hardening.capture import Delivery, delivery_of
from hardening.core.identity import KEY_HEADER, LETTER_HEADER, REPLAY_HEADER
from hardening.core.reasons import Reason
from hardening.intake.compression import bound_decompression
from hardening.intake.letters import raw_letter

pytestmark = pytest.mark.django_db(transaction=True)

HEADERS = {"task": "shop.charge", "id": "task-1", "lang": "py"}


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Celery:
    app = Celery("repairs", broker=f"memory://{uuid4()}", set_as_current=False)
    app.conf.task_queues = [Queue("celery")]
    monkeypatch.setattr("dlq.replay.celery_app", lambda: app)
    return app


@pytest.fixture
def sent(app: Celery) -> Callable[[], Any]:
    def get() -> Any:
        with app.connection() as connection:
            bound = Queue("celery")(connection.default_channel)
            bound.declare()
            return bound.get(no_ack=True)

    get()
    return get


def kept(app: Celery, body: Any, headers: Any = None, **more: Any) -> DeadLetter:
    given = {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "properties": {},
        "exchange": "",
        "routing_key": "celery",
        "redelivered": False,
        "pid": 1,
        **more,
    }
    raw = Delivery(body=body, headers=HEADERS if headers is None else headers, **given)
    error = ValueError("<script>alert(1)</script>")
    record = raw_letter(app, raw, reason=Reason.UNDECODABLE, error=error, worker="w")
    DatabaseSink().keep(record)
    row: DeadLetter = DeadLetter.objects.get(task_id=record.task_id)
    return row


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


ODD: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "no UTF-8": (b"\xff\xfe\x00", None, {}),
    "markup": (b"<script>alert(1)</script>", None, {}),
    "JSON of another shape": (b'{"<b>": ["<script>"]}', None, {}),
    "nothing": (None, None, {}),
    "a dict for a body": ({"a": 1}, None, {}),
    "no headers": (b"[]", [1, "<script>"], {}),
    "surrogates": (b'[["\\ud800"], {"\\udfff": 1}, {}]', {**HEADERS, "odd\ud800": "\udfff<script>"}, {}),
    "an odd type": (b"x", None, {"content_type": ["<script>"], "content_encoding": 5}),
    "an unhashable name": (b"x", {"task": ["<script>"], "id": {"a": 1}}, {}),
    "odd properties": (b"x", None, {"properties": [1], "exchange": "e", "routing_key": "\ud800"}),
    "a huge header": (b"x", {**HEADERS, "big": "y" * 200_000}, {}),
}


@pytest.mark.parametrize("name", ODD)
def test_the_admin_and_the_commands_show_any_letter_and_escape_it(app, admin_client, name) -> None:
    body, headers, more = ODD[name]
    row = kept(app, body, headers, **more)

    for address in ("/admin/dlq/deadletter/", f"/admin/dlq/deadletter/{row.pk}/change/"):
        response = admin_client.get(address)
        assert response.status_code == 200
        assert b"<script>alert" not in response.content
        assert b"<script>&quot;" not in response.content
        assert b'"<script>' not in response.content
    assert str(row.pk) in run("dlq_show", str(row.pk))
    assert json.loads(run("dlq_show", str(row.pk), "--json"))["reason"] == "undecodable"
    assert str(row.pk) in run("dlq_list")


def test_an_export_is_the_body_byte_for_byte_and_for_its_owner_alone(app, tmp_path: Path) -> None:
    row = kept(app, b"\xff\xfe\x00 {")
    body, message = tmp_path / "body", tmp_path / "message"

    run("dlq_export", str(row.pk), "--body", str(body), "--message", str(message))

    assert body.read_bytes() == b"\xff\xfe\x00 {"
    assert body.stat().st_mode & 0o777 == 0o600
    about = json.loads(message.read_text())
    assert about["headers"] == HEADERS
    assert (about["content_type"], about["queue"]) == ("application/json", "celery")


def test_an_export_overwrites_nothing_and_wants_a_file(app, tmp_path: Path) -> None:
    row = kept(app, b"{")
    there = tmp_path / "there"
    there.write_text("mine")

    with pytest.raises(CommandError, match="exists"):
        run("dlq_export", str(row.pk), "--body", str(there))
    with pytest.raises(CommandError, match="--body"):
        run("dlq_export", str(row.pk))
    with pytest.raises(CommandError, match="only one"):
        run("dlq_export", str(row.pk), "--body", "-", "--message", "-")
    with pytest.raises(CommandError, match="no dead letter"):
        run("dlq_export", str(uuid4()), "--body", str(tmp_path / "new"))
    assert there.read_text() == "mine"


def test_a_repaired_body_is_sent_under_the_identity_of_its_letter(app, sent, tmp_path: Path) -> None:
    row = kept(app, b'[["\xff"], {}, {}]')
    file = tmp_path / "body"
    file.write_bytes(b'[["repaired"], {}, {}]')

    run("dlq_replay", str(row.pk), "--body", str(file))

    message = sent()
    row.refresh_from_db()
    assert message.payload == [["repaired"], {}, {}]
    assert (row.state, message.headers["id"]) == ("replayed", row.replay_task_id)
    assert {name: message.headers[name] for name in (KEY_HEADER, REPLAY_HEADER, LETTER_HEADER)} == {
        KEY_HEADER: "task-1",
        REPLAY_HEADER: 1,
        LETTER_HEADER: str(row.pk),
    }
    assert row.record().payload.body == b'[["\xff"], {}, {}]', "what was kept stays as it was"


def test_a_message_file_brings_the_headers_of_what_had_none(app, sent, tmp_path: Path) -> None:
    row = kept(app, b"garbage", {}, content_type="application/octet-stream")
    body, message = tmp_path / "body", tmp_path / "message"
    body.write_bytes(b"[[1], {}, {}]")
    message.write_text(
        json.dumps({"headers": {"task": "shop.charge", "eta": "soon"}, "content_type": "application/json"})
    )

    run("dlq_replay", str(row.pk), "--body", str(body), "--message", str(message))

    found = sent()
    assert found.payload == [[1], {}, {}]
    assert (found.headers["task"], found.headers["id"]) == ("shop.charge", row.replay_task_id)
    assert found.headers["eta"] is None
    assert found.content_type == "application/json"


def test_another_content_type_may_be_named(app, sent, tmp_path: Path) -> None:
    row = kept(app, b"<xml/>", content_type="application/xml")
    body = tmp_path / "body"
    body.write_bytes(b"[[1], {}, {}]")

    run("dlq_replay", str(row.pk), "--body", str(body), "--content-type", "application/json")

    assert sent().payload == [[1], {}, {}]


def test_a_repair_that_cannot_be_right_is_refused_and_the_letter_stays_open(
    app, sent, tmp_path: Path
) -> None:
    row, other = kept(app, b"{"), kept(app, b"[", {**HEADERS, "id": "task-2"})
    body = tmp_path / "body"
    body.write_bytes(b"{")
    good = tmp_path / "good"
    good.write_bytes(b"[[], {}, {}]")

    with pytest.raises(CommandError, match="1 of 1 letters were not sent"):
        run("dlq_replay", str(row.pk), "--body", str(body))
    row.refresh_from_db()
    assert "no JSON" in row.replay_error
    with pytest.raises(CommandError, match="one id"):
        run("dlq_replay", str(row.pk), str(other.pk), "--body", str(good))
    with pytest.raises(CommandError, match="no message"):
        run("dlq_replay", str(row.pk), "--body", str(good), "--message", str(good))
    with pytest.raises(CommandError, match="cannot be read"):
        run("dlq_replay", str(row.pk), "--body", str(tmp_path / "absent"))

    assert sent() is None
    assert {each.state for each in DeadLetter.objects.all()} == {"open"}


GOOD = b'[["a body of some length"], {}, {}]'
GZIP = {**HEADERS, "compression": "application/x-gzip"}


def kept_undecoded(app: Celery, body: bytes) -> DeadLetter:
    """The letter of a compressed body that came over the broker, and could not be decompressed."""
    with app.connection() as connection:
        channel: Any = connection.default_channel
        Producer(channel).publish(
            body,
            routing_key="celery",
            headers=GZIP,
            content_type="application/json",
            content_encoding="utf-8",
        )
        raw = delivery_of(channel.basic_get("celery", no_ack=True))
    return kept(app, raw.body, raw.headers, properties=raw.properties)


@pytest.mark.parametrize("body", [zlib.compress(GOOD), b"not compressed"], ids=["too large", "broken"])
def test_what_could_not_be_decompressed_is_replayed_as_it_came(app, sent, monkeypatch, body: bytes) -> None:
    decoders: Any = vars(compression)["_decoders"]
    monkeypatch.setattr(compression, "_decoders", dict(decoders))
    bound_decompression(10)
    row = kept_undecoded(app, body)
    assert row.record().payload.body == body

    monkeypatch.setattr(compression, "_decoders", {"application/x-gzip": bytes})  # Shows what was sent.
    run("dlq_replay", str(row.pk))

    message = sent()
    assert (message.body, message.headers["compression"]) == (body, "application/x-gzip")
    assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")


def test_what_was_too_large_is_run_once_more_is_allowed(app, sent, monkeypatch) -> None:
    decoders: Any = vars(compression)["_decoders"]
    monkeypatch.setattr(compression, "_decoders", dict(decoders))
    bound_decompression(10)
    row = kept_undecoded(app, zlib.compress(GOOD))

    bound_decompression(1000)
    run("dlq_replay", str(row.pk))

    assert sent().payload == json.loads(GOOD)


def test_the_repaired_body_of_what_could_not_be_decompressed_is_sent_as_it_stands(
    app, sent, tmp_path: Path
) -> None:
    row = kept_undecoded(app, b"not compressed")
    body, message = tmp_path / "body", tmp_path / "message"
    run("dlq_export", str(row.pk), "--message", str(message))
    body.write_bytes(GOOD)

    run("dlq_replay", str(row.pk), "--body", str(body), "--message", str(message))

    found = sent()
    assert found.payload == json.loads(GOOD)
    assert "compression" not in found.headers
