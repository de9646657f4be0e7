"""Codes of the operating system and the resolver: read from an error, and what they say."""

from __future__ import annotations

import errno
import socket

from .verdict import Kind

__all__ = ["decide_errno", "errno_code", "resolver_code"]

# Errors whose `errno` counts something else than the operating system does.
_OTHER_NUMBERS = {("ssl", "SSLError"), ("socket", "gaierror"), ("socket", "herror")}

_TRANSIENT = frozenset(
    {
        # The network and the other side.
        *("ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "EPIPE", "ETIMEDOUT", "EHOSTUNREACH"),
        *("EHOSTDOWN", "ENETUNREACH", "ENETDOWN", "ENETRESET"),
        *("ENOTCONN", "ESHUTDOWN", "EADDRINUSE", "EADDRNOTAVAIL", "ENONET", "ENOLINK", "ECOMM"),
        *("EREMOTEIO", "ETIME"),
        # Used up for now.
        *("EAGAIN", "EWOULDBLOCK", "ENOBUFS", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "EDQUOT"),
        *("ENOSR", "EUSERS", "ENOLCK"),
        # In use, interrupted, or a device or file server that stumbled.
        *("EINTR", "EINPROGRESS", "EALREADY", "EBUSY", "ETXTBSY", "EDEADLK", "EDEADLOCK", "EIO"),
        *("ESTALE",),
    }
)
# Left out, so that they say nothing: EBADF, ENOTSOCK and ECHILD. A descriptor or a child process that is
# gone may have been closed or waited for by another thread, or belong to the process before a fork.
_PERMANENT = frozenset(
    {
        # The path or what is there.
        *("ENOENT", "EACCES", "EPERM", "EISDIR", "ENOTDIR", "EEXIST", "ENOTEMPTY", "ENAMETOOLONG"),
        *("ELOOP", "EXDEV", "EFBIG", "EMLINK", "ENODEV", "ENXIO"),
        # What was asked for.
        *("EINVAL", "E2BIG", "ENOEXEC", "ENOSYS", "ENOTSUP", "EOPNOTSUPP", "EAFNOSUPPORT"),
        *("EPFNOSUPPORT", "EPROTONOSUPPORT", "EPROTOTYPE"),
        *("ENOPROTOOPT", "EDESTADDRREQ", "EMSGSIZE", "ENOTTY", "ESPIPE"),
        *("ERANGE", "EDOM", "EILSEQ", "EFAULT", "EOVERFLOW"),
        # A process that is not there.
        *("ESRCH",),
    }
)
_RESOLVER = {
    getattr(socket, name): name
    for name in dir(socket)
    if name.startswith("EAI_") and isinstance(getattr(socket, name), int)
}


def errno_code(exc: BaseException) -> str | None:
    """The name of an operating system error, such as "ECONNRESET", where the error is one."""
    mro = type(exc).__mro__
    if OSError not in mro or any((each.__module__, each.__qualname__) in _OTHER_NUMBERS for each in mro):
        return None
    number = getattr(exc, "errno", None)
    return errno.errorcode.get(number) if isinstance(number, int) else None


def decide_errno(code: str) -> Kind | None:
    """What the name of an errno says of another try; None for one that says nothing."""
    if code in _TRANSIENT:
        return Kind.TRANSIENT
    return Kind.PERMANENT if code in _PERMANENT else None


def resolver_code(exc: BaseException) -> str | None:
    """The name of a resolver's error, such as "EAI_AGAIN"."""
    number = getattr(exc, "errno", None)
    return _RESOLVER.get(number) if isinstance(number, int) else None
