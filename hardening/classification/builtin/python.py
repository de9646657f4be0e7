"""Rules about Python's own errors. Those of TLS are in http.py."""

from __future__ import annotations

from ..rule import Rule
from ..system_codes import decide_errno, errno_code, resolver_code
from ..verdict import Kind

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    Rule(
        name="python.connection",
        classes=("ConnectionError", "asyncio.exceptions.IncompleteReadError", "imaplib.IMAP4.abort"),
        verdict=Kind.TRANSIENT,
        read=errno_code,
        why="The other side is not there, or left in the middle: it may be back at the next try.",
    ),
    Rule(
        name="python.timeout",
        classes=("TimeoutError", "subprocess.TimeoutExpired", "multiprocessing.context.TimeoutError"),
        verdict=Kind.TRANSIENT,
        read=errno_code,
        why="It took too long this time.",
    ),
    Rule(
        name="python.dns",
        classes=("socket.gaierror", "socket.herror"),
        verdict=Kind.TRANSIENT,
        read=resolver_code,
        why="A name that cannot be resolved is as a rule a resolver that does not answer.",
    ),
    Rule(
        name="python.os_error",
        classes=("OSError",),
        read=errno_code,
        decide=decide_errno,
        why="The errno says whether the system is short of something, or was asked for the impossible.",
    ),
    Rule(
        name="python.file",
        classes=(
            "FileNotFoundError",
            "FileExistsError",
            "IsADirectoryError",
            "NotADirectoryError",
            "PermissionError",
            "ProcessLookupError",
        ),
        verdict=Kind.PERMANENT,
        read=errno_code,
        why="What is missing or forbidden stays so until somebody changes it.",
    ),
    Rule(
        name="python.interrupted",
        classes=("BlockingIOError", "InterruptedError"),
        verdict=Kind.TRANSIENT,
        read=errno_code,
        why="It would have had to wait, or was interrupted.",
    ),
    Rule(
        name="python.programming",
        classes=(
            "TypeError",
            "AttributeError",
            "NameError",
            "ArithmeticError",
            "AssertionError",
            "NotImplementedError",
            "RecursionError",
            "SyntaxError",
            "ImportError",
            "BufferError",
            "re.error",
            "re.PatternError",
            "io.UnsupportedOperation",
        ),
        verdict=Kind.PERMANENT,
        why="The same code with the same arguments goes wrong in the same place.",
    ),
    Rule(
        name="python.lookup",
        classes=("KeyError", "IndexError"),
        verdict=Kind.PERMANENT,
        weak=True,
        why=(
            "What was looked up is not there, nor will it be for the same code with the same arguments. A "
            "retry that the task asks for by hand is granted: its author knows what he waits for."
        ),
    ),
    # The same rule, but of LookupError only what is raised as such: a project's subclass may mean anything.
    Rule(
        name="python.lookup",
        classes=("LookupError",),
        exact=True,
        verdict=Kind.PERMANENT,
        weak=True,
        why="Python itself raises it for an unknown encoding.",
    ),
    Rule(
        name="python.decode",
        classes=(
            "UnicodeError",
            "json.decoder.JSONDecodeError",
            "binascii.Error",
            "struct.error",
            "csv.Error",
            "pickle.PickleError",
            "zlib.error",
            "lzma.LZMAError",
            "gzip.BadGzipFile",
            "tarfile.TarError",
            "tomllib.TOMLDecodeError",
            "configparser.Error",
            "plistlib.InvalidFileException",
            "xml.sax.SAXParseException",
            "email.errors.MessageError",
        ),
        verdict=Kind.PERMANENT,
        why="Data that cannot be read today cannot be read tomorrow.",
    ),
    Rule(
        name="python.unreadable",
        classes=(
            "zipfile.BadZipFile",
            "pickle.UnpicklingError",
            "xml.etree.ElementTree.ParseError",
            "xml.parsers.expat.ExpatError",
        ),
        verdict=Kind.UNKNOWN,
        why="The data is broken for good, or was read before all of it was written or fetched.",
    ),
    Rule(
        name="python.ftp",
        classes=("ftplib.error_temp",),
        verdict=Kind.TRANSIENT,
        why="The server answered with a code from 400 to 499: not now.",
    ),
    Rule(
        name="python.ftp_refused",
        classes=("ftplib.error_perm",),
        verdict=Kind.PERMANENT,
        why="The server answered with a code from 500 to 599: not at all.",
    ),
)
