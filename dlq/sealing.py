"""Encryption of payloads at rest: with keys set nothing is ever stored in clear, not even on failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import CannotSeal, CannotUnseal

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

__all__ = ["CLEAR", "FERNET", "Sealed", "problem_with_keys", "seal", "unseal"]

CLEAR = "clear"
FERNET = "fernet"
_INSTALL = 'Install it (pip install "cryptography"), or remove DLQ["ENCRYPTION_KEYS"].'


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """Bytes as they are stored, and how: the marker is kept beside them."""

    data: bytes
    method: str


def seal(plain: bytes, keys: Sequence[str]) -> Sealed:
    """Encrypt with the first key; in clear only when there is none. Raises CannotSeal otherwise."""
    if not keys:
        return Sealed(data=plain, method=CLEAR)
    problem = problem_with_keys(keys)
    if problem is not None:
        raise CannotSeal(problem)
    return Sealed(data=_fernet(keys).encrypt(plain), method=FERNET)


def unseal(data: bytes, method: str, keys: Sequence[str], *, letter_id: object) -> bytes:
    """The plain bytes. Raises CannotUnseal, which names the letter and the remedy."""
    if method == CLEAR:
        return data
    if method != FERNET:
        raise CannotUnseal(
            f"letter {letter_id}: unknown sealing method {method!r}; was it written by a newer version?"
        )
    if not keys:
        raise CannotUnseal(
            f'letter {letter_id} is encrypted and DLQ["ENCRYPTION_KEYS"] is empty: '
            "set the key that it was stored with"
        )
    problem = problem_with_keys(keys)
    if problem is not None:
        raise CannotUnseal(f"letter {letter_id} cannot be decrypted: {problem}")
    from cryptography.fernet import InvalidToken

    try:
        return _fernet(keys).decrypt(data)
    except InvalidToken:
        raise CannotUnseal(
            f'letter {letter_id} was encrypted with a key that is not in DLQ["ENCRYPTION_KEYS"]: '
            "add the old key at the end of the list"
        ) from None


def problem_with_keys(keys: Sequence[str]) -> str | None:
    """What keeps these keys from working, with the remedy; None: they work. Never quotes a key."""
    try:
        from cryptography.fernet import Fernet
    except ImportError:
        return f"the package cryptography is not installed. {_INSTALL}"
    for position, key in enumerate(keys):
        try:
            Fernet(key)
        except (ValueError, TypeError):
            return (
                f'DLQ["ENCRYPTION_KEYS"][{position}] is not a Fernet key (32 bytes, url-safe base64). '
                "Make one: "
                'python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"'
            )
    return None


def _fernet(keys: Sequence[str]) -> MultiFernet:
    from cryptography.fernet import Fernet, MultiFernet

    return MultiFernet([Fernet(key) for key in keys])
