"""A stored message, opened: of a letter, or the edited one of an item. Each is opened once."""

from __future__ import annotations

from typing import Any

from hardening.core.letter import DeadLetter as LetterRecord
from hardening.core.letter import dump_letter, load_letter

from ..conf import dlq_settings
from ..errors import CannotUnseal
from ..sealing import Sealed, seal, unseal

__all__ = ["record_of", "sealed_record"]


def record_of(sealed: Any, method: str, letter_id: object) -> LetterRecord:
    """The letter as it was sealed. Raises CannotUnseal."""
    plain = unseal(bytes(sealed), method, dlq_settings().encryption_keys, letter_id=letter_id)
    try:
        return load_letter(plain)
    except ValueError as exc:
        raise CannotUnseal(f"letter {letter_id}: its stored payload is damaged ({exc})") from exc


def sealed_record(record: LetterRecord) -> Sealed:
    """Ready to be stored. Raises CannotSeal."""
    return seal(dump_letter(record), dlq_settings().encryption_keys)
