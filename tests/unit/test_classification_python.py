"""Python's own errors, as Python raises them, are classified."""

from __future__ import annotations

import asyncio
import binascii
import configparser
import csv
import errno
import ftplib
import gzip
import io
import json
import os
import pickle
import re
import socket
import ssl
import struct
import subprocess
import sys
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import pytest

from hardening.classification.current import project_classifier
from hardening.classification.system_codes import decide_errno
from hardening.classification.verdict import Kind, Verdict

P, T, U = Kind.PERMANENT, Kind.TRANSIENT, Kind.UNKNOWN


def verdict_on(act: Callable[[], Any]) -> Verdict:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (the verdict says which)
        act()
    return project_classifier().judge(caught.value)


def said(act: Callable[[], Any]) -> tuple[Kind, str, str]:
    verdict = verdict_on(act)
    return verdict.kind, verdict.rule, verdict.code


def test_a_closed_port_a_cut_line_and_a_broken_pipe_are_transient() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert said(lambda: socket.create_connection(("127.0.0.1", port))) == (
        *(T, "python.connection", "ECONNREFUSED"),
    )

    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        assert said(lambda: ours.send(b"x")) == (T, "python.connection", "EPIPE")

    reader = asyncio.StreamReader

    async def cut() -> None:
        stream = reader()
        stream.feed_eof()
        await stream.readexactly(1)

    assert said(lambda: asyncio.run(cut()))[:2] == (T, "python.connection")


def test_what_took_too_long_is_transient() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.01)
        assert said(lambda: ours.recv(1))[:2] == (T, "python.timeout")
        ours.setblocking(False)
        assert said(lambda: ours.recv(1)) == (T, "python.interrupted", "EAGAIN")

    async def too_long() -> None:
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)

    command = [sys.executable, "-c", "input()"]
    assert said(lambda: asyncio.run(too_long()))[:2] == (T, "python.timeout")
    assert said(lambda: subprocess.run(command, stdin=subprocess.PIPE, timeout=0.01))[:2] == (
        *(T, "python.timeout"),
    )


def test_a_name_that_cannot_be_resolved_is_transient() -> None:
    kind, rule, code = said(lambda: socket.getaddrinfo("127.0.0.300", 80, flags=socket.AI_NUMERICHOST))

    assert (kind, rule) == (T, "python.dns")
    assert code.startswith("EAI_")


def test_a_tls_error_is_not_judged_by_its_number() -> None:
    context = ssl.create_default_context()
    server, client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    verdict = verdict_on(lambda: context.wrap_bio(server, client, server_hostname="acme").do_handshake())

    assert (verdict.kind, verdict.rule) == (T, "tls.connection")  # Its errno is 1, which is EPERM elsewhere.


def test_what_the_file_system_refuses_is_permanent(tmp_path) -> None:
    there = tmp_path / "there"
    there.mkdir()

    assert said(lambda: os.open(tmp_path / "missing", os.O_RDONLY)) == (P, "python.file", "ENOENT")
    assert said(there.mkdir) == (P, "python.file", "EEXIST")
    assert said(there.read_text) == (P, "python.file", "EISDIR")
    assert said((tmp_path / ("x" * 300)).read_text) == (P, "python.os_error", "ENAMETOOLONG")
    assert said(lambda: os.kill(2**22 + 1, 0)) == (P, "python.file", "ESRCH")


def test_a_descriptor_or_a_child_that_is_gone_is_unknown() -> None:
    def call_a_method_of_sockets_on_a_file() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=os.open(os.devnull, 0)) as no_socket:
            no_socket.listen()

    assert said(lambda: os.close(99_999))[:2] == (U, "none")
    assert said(lambda: os.waitpid(2**22 + 1, 0))[:2] == (U, "none")
    with pytest.raises(OSError, match="non-socket") as caught:
        call_a_method_of_sockets_on_a_file()
    assert caught.value.errno == errno.ENOTSOCK
    assert project_classifier().judge(caught.value).kind is U


def test_a_file_error_without_a_number_is_permanent_all_the_same() -> None:
    def missing() -> None:
        raise FileNotFoundError("invoice.pdf")

    assert said(missing) == (P, "python.file", "")


def test_a_full_disk_is_transient() -> None:
    if not os.path.exists("/dev/full"):  # noqa: PTH110
        pytest.skip("this system has no /dev/full")

    def fill() -> None:
        with open("/dev/full", "wb", buffering=0) as file:  # noqa: PTH123
            file.write(b"x")

    assert said(fill) == (T, "python.os_error", "ENOSPC")


def test_too_many_open_files_are_transient() -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files") as caught:
            os.open("/", os.O_RDONLY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert project_classifier().judge(caught.value) == Verdict(kind=T, rule="python.os_error", code="EMFILE")


def test_every_errno_says_at_most_one_thing_and_an_unknown_one_nothing() -> None:
    assert {decide_errno(name) for name in errno.errorcode.values()} == {T, P, None}
    assert decide_errno("EROFS") is None
    assert project_classifier().judge(OSError("no number")).rule == "none"
    assert project_classifier().judge(OSError(99_999, "odd")).rule == "none"


def endless() -> None:
    endless()


@pytest.mark.parametrize(
    "source",
    [
        *("len(7)", "None.name", "missing", "1 / 0", "2.0 ** 5000", "1 +"),
        *("__import__('no_such_module')", "int('7').real()"),
    ],
)
def test_a_mistake_in_the_code_is_permanent(source) -> None:
    assert said(lambda: eval(source))[:2] == (P, "python.programming")


def test_so_are_the_rarer_ones() -> None:
    def check() -> None:
        assert not "true"

    def todo() -> None:
        raise NotImplementedError

    for act in (endless, check, todo, lambda: re.compile("("), lambda: io.BytesIO().fileno()):
        assert said(act)[:2] == (P, "python.programming")


class NoRateYet(LookupError):
    pass


def test_what_is_not_found_is_permanent_unless_the_author_asks_for_a_retry_by_hand() -> None:
    empty: dict[str, int] = {}

    for act in (lambda: empty["key"], lambda: [][0], lambda: "x".encode("no-such-encoding")):
        verdict = verdict_on(act)
        assert (verdict.kind, verdict.rule, verdict.weak) == (P, "python.lookup", True)
    assert not verdict_on(lambda: 1 / 0).weak
    assert project_classifier().judge(NoRateYet()) == Verdict(kind=U, rule="none")


@pytest.mark.parametrize(
    "act",
    [
        lambda: json.loads("{"),
        lambda: b"\xff".decode(),
        lambda: "\ud800".encode(),
        lambda: binascii.unhexlify("x"),
        lambda: struct.unpack("i", b""),
        lambda: pickle.dumps(type("Local", (), {})),
        lambda: zlib.decompress(b"x"),
        lambda: gzip.decompress(b"no gzip"),
        lambda: tarfile.TarFile(fileobj=io.BytesIO(b"no tar")),
        lambda: tomllib.loads("="),
        lambda: configparser.ConfigParser().read_string("x"),
        lambda: list(csv.reader(["a\0b", '"'], strict=True)),
    ],
)
def test_data_that_cannot_be_read_is_permanent(act) -> None:
    assert said(act)[:2] == (P, "python.decode")


@pytest.mark.parametrize(
    "act",
    [
        lambda: pickle.loads(b"\x80\x04x"),
        lambda: zipfile.ZipFile(io.BytesIO(b"half a zi")),
        lambda: ElementTree.fromstring("<half"),
        lambda: expat.ParserCreate().Parse("<half", True),
    ],
)
def test_what_may_have_been_read_before_it_was_whole_is_unknown(act) -> None:
    assert said(act)[:2] == (U, "python.unreadable")


def test_of_ftp_the_first_digit_decides() -> None:
    def answer(line: str) -> Callable[[], Any]:
        client = ftplib.FTP()
        client.file = io.StringIO(f"{line}\r\n")
        return client.getresp

    assert said(answer("421 too many"))[:2] == (T, "python.ftp")
    assert said(answer("550 no such file"))[:2] == (P, "python.ftp_refused")


class OrderError(ValueError):
    pass


@pytest.mark.parametrize(
    "exc", [Exception("x"), ValueError("x"), OrderError("x"), RuntimeError("x"), OSError("x"), EOFError()]
)
def test_what_says_nothing_of_itself_stays_unknown(exc) -> None:
    assert project_classifier().judge(exc) == Verdict(kind=U, rule="none")


def test_an_error_raised_from_a_known_one_is_known() -> None:
    def load() -> None:
        try:
            json.loads("{")
        except ValueError as exc:
            raise OrderError from exc

    assert verdict_on(load) == Verdict(kind=P, rule="python.decode", via="json.decoder.JSONDecodeError")
