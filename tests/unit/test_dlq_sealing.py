"""Payloads are encrypted when keys are set, readable with every listed key, and never in clear by mistake."""

from __future__ import annotations

import sys

import pytest
from cryptography.fernet import Fernet

from dlq.errors import CannotSeal, CannotUnseal
from dlq.sealing import CLEAR, FERNET, seal, unseal

OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))


def test_without_keys_bytes_are_stored_in_clear_and_marked_so() -> None:
    sealed = seal(b"x", ())

    assert (sealed.data, sealed.method) == (b"x", CLEAR)
    assert unseal(sealed.data, sealed.method, (NEW,), letter_id=1) == b"x"


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    sealed = seal(b"secret", (NEW, OLD))

    assert sealed.method == FERNET
    assert b"secret" not in sealed.data
    assert unseal(sealed.data, FERNET, (NEW,), letter_id=1) == b"secret"
    assert unseal(seal(b"old", (OLD,)).data, FERNET, (NEW, OLD), letter_id=1) == b"old"


@pytest.mark.parametrize(
    ("keys", "says"), [((), "is empty"), ((NEW,), "add the old key"), (("bad",), "not a Fernet")]
)
def test_a_key_that_is_missing_is_named_as_the_cause_with_the_letter(keys, says) -> None:
    with pytest.raises(CannotUnseal, match=f"letter 17.*{says}"):
        unseal(seal(b"x", (OLD,)).data, FERNET, keys, letter_id=17)


def test_an_unknown_method_is_no_crash_but_an_error() -> None:
    with pytest.raises(CannotUnseal, match=r"letter 17.*newer version"):
        unseal(b"x", "rot13", (), letter_id=17)


def test_without_cryptography_nothing_is_sealed_at_all(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.fernet", None)

    with pytest.raises(CannotSeal, match="not installed"):
        seal(b"x", (NEW,))


def test_no_error_quotes_a_key() -> None:
    with pytest.raises(CannotSeal) as caught:
        seal(b"x", (NEW, "hunter22"))

    assert "hunter22" not in str(caught.value)
    assert '["ENCRYPTION_KEYS"][1]' in str(caught.value)
