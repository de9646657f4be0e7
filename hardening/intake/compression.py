"""Bodies that expand to more than the worker may hold: kombu decompresses before anybody can look at one.

A few kilobytes may expand to gigabytes, in the worker's main process, which the kernel then ends; the message
comes back and does the same to the next worker, and no start is counted. So kombu's own decompressors are
replaced by ones that stop at a limit. The message then carries the error, with its body as it was sent.

A decompressor that the project has registered is the project's. Of brotli nothing is bounded: its library
knows no limit.
"""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from kombu.compression import get_decoder, get_encoder, register

__all__ = ["ExpandsTooFar", "bound_decompression"]

_LZMA_MEMORY = 128 * 1024 * 1024
"""For its dictionary, whose size the body names itself; the highest preset of xz needs half of it."""


class ExpandsTooFar(ValueError):
    """A body is larger than the limit when it is decompressed."""


def bound_decompression(most_bytes: int) -> None:
    """From now on this process decompresses no body to more than so many bytes. May be called again."""
    for name, module, begin in _known():
        try:
            own = get_decoder(name)
        except KeyError:
            continue
        if own is module.decompress or (isinstance(own, partial) and own.func is _expanded):
            encoder: Any = get_encoder(name)  # A pair, whatever its stub says.
            register(encoder[0], partial(_expanded, begin, most_bytes), name)


def _known() -> list[tuple[str, Any, Callable[[], Any]]]:
    """kombu's names, the module that it uses, and one stream's decompressor."""
    known: list[tuple[str, Any, Callable[[], Any]]] = [
        ("application/x-gzip", zlib, zlib.decompressobj),
        ("application/x-bz2", bz2, bz2.BZ2Decompressor),
        ("application/x-lzma", lzma, partial(lzma.LZMADecompressor, memlimit=_LZMA_MEMORY)),
    ]
    zstd = sys.modules.get("compression.zstd") or sys.modules.get("backports.zstd")
    if zstd is not None:
        known.append(("application/zstd", zstd, zstd.ZstdDecompressor))
    return known


def _expanded(begin: Callable[[], Any], most_bytes: int, body: bytes) -> bytes:
    """All streams of a body, one after the other. Raises ExpandsTooFar, or what the library raises."""
    found = bytearray()
    while True:
        stream = begin()
        found += stream.decompress(body, most_bytes + 1 - len(found))
        if len(found) > most_bytes:
            raise ExpandsTooFar(f"its body has more than {most_bytes} bytes when it is decompressed")
        if not stream.eof:
            raise EOFError("its body ends in the midst of what was compressed")
        body = stream.unused_data
        if not body:
            return bytes(found)
