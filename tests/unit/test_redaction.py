"""The redactor hides what its names say, in values and in texts, and little else."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

import pytest

from hardening.core.redaction import MASK, Redactor, project_redactor


@pytest.mark.parametrize(
    "name",
    [
        *(
            "password",
            "PASSWORD",
            "new_password",
            "passwordHash",
            "userPassword",
            "user-password",
            "password2",
        ),
        *("card", "card_number", "cardNumber", "CARD_NO", "credit_card", "cards"),
        *("api_key", "apiKey", "API-KEY", "apikey", "stripe_api_key"),
        *(
            "token",
            "access_token",
            "accesstoken",
            "tokens",
            "authorization",
            "Authorization",
            "cvv",
            "iban",
            "IBAN_1",
        ),
    ],
)
def test_a_plain_name_hides_every_key_that_contains_it_as_a_word(name) -> None:
    assert Redactor().value({name: "x"}) == {name: MASK}


@pytest.mark.parametrize("name", ["discard", "cardinality", "scarde", "urbanization", "key", "api", "", "1"])
def test_a_name_that_only_looks_alike_is_shown(name) -> None:
    assert Redactor().value({name: "x"}) == {name: "x"}


def test_names_are_found_at_any_depth_and_in_lists() -> None:
    value = {"users": [{"login": "a", "auth": {"password": "x"}}], "pairs": ({"token": ["x", {"y": 1}]},)}

    assert Redactor().value(value) == {
        "users": [{"login": "a", "auth": {"password": MASK}}],
        "pairs": [{"token": MASK}],
    }


def test_a_dotted_name_hides_that_path_only() -> None:
    hide = Redactor(["customer.address.zip"])

    _args, kwargs = hide.arguments(
        [], {"customer": {"address": {"zip": "1", "city": "2"}, "zip": "3"}, "zip": "4"}
    )

    assert kwargs == {"customer": {"address": {"zip": MASK, "city": "2"}, "zip": "3"}, "zip": "4"}


def test_positional_arguments_are_hidden_by_the_names_of_the_parameters() -> None:
    args, kwargs = Redactor().arguments(["ann", "hunter22", 3], {"token": "t"}, ["user", "password"])

    assert (args, kwargs) == (["ann", MASK, 3], {"token": MASK})


def test_the_original_is_not_changed() -> None:
    value = {"password": "x", "list": [{"token": "y"}]}

    Redactor().value(value)

    assert value == {"password": "x", "list": [{"token": "y"}]}


def test_a_name_in_another_script_hides_its_keys_and_no_others() -> None:
    hide = Redactor(["пароль"])

    assert hide.value({"пароль": 1, "новый_пароль": 2, "s": 3, "имя": 4}) == {
        "пароль": MASK,
        "новый_пароль": MASK,
        "s": 3,
        "имя": 4,
    }


def test_a_value_nested_without_end_is_hidden_rather_than_followed() -> None:
    value: dict = {}
    value["deeper"] = value

    assert MASK in json.dumps(Redactor().value(value))


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("login password=hunter22 failed", "login password=[redacted] failed"),
        ("password: hunter22, user: ann", "password: [redacted], user: ann"),
        ("password = 'two words' end", "password = [redacted] end"),
        ('{"password": "a b", "user": "ann"}', '{"password": [redacted], "user": "ann"}'),
        ("{'new_password': 'x', 'a': 1}", "{'new_password': [redacted], 'a': 1}"),
        ("Authorization: Bearer abc.def", "Authorization: [redacted]"),
        ("f(token=abc, n=1)", "f(token=[redacted], n=1)"),
        ("https://host/?token=abc&page=2", "https://host/?token=[redacted]&page=2"),
        ("error: url: https://host/a?x=1&api_key=abc", "error: url: https://host/a?x=1&api_key=[redacted]"),
        (r'"{\"password\": \"a b\", \"n\": 1}"', r'"{\"password\": [redacted], \"n\": 1}"'),
        ("discard=1 user=ann", "discard=1 user=ann"),
        ("no secrets here", "no secrets here"),
    ],
)
def test_assignments_in_a_text_lose_their_secret_value(text, safe) -> None:
    assert Redactor().text(text) == safe


def test_redacting_a_text_twice_changes_nothing_more() -> None:
    once = Redactor().text("password=hunter22 token: 'x y'")

    assert Redactor().text(once) == once


def test_values_of_secret_arguments_are_found_again_in_a_text() -> None:
    hide = Redactor()
    secrets = hide.secrets_in(
        ["hunter22"], {"card": {"number": 4111111111111111, "short": "no"}}, ["password"]
    )

    text = hide.text("declined 4111111111111111 for hunter22, no retry", secrets)

    assert text == "declined [redacted] for [redacted], no retry"


def test_a_longer_secret_is_replaced_before_one_that_it_contains() -> None:
    hide = Redactor()
    secrets = hide.secrets_in([], {"password": "hunter22", "token": "hunter22-long"})

    assert hide.text("hunter22-long", secrets) == MASK


def test_a_secret_is_found_in_its_repr_form() -> None:
    hide = Redactor()

    assert "two" not in hide.text(repr("two\nlines"), hide.secrets_in(["two\nlines"], {}, ["password"]))


@pytest.mark.parametrize("text", ["x" * 2_000_000, "ab-1_" * 400_000, "k:" * 200_000, " " * 2_000_000])
def test_a_long_text_costs_no_more_than_its_length(text) -> None:
    # Quadratic, one of these takes hours: the time-out of the test is the assertion.
    assert Redactor().text(text) == text


@pytest.mark.parametrize("text", ["pässwort 12/3", "a b+c&d", 'quo"te\\'])
def test_a_secret_is_found_in_the_forms_that_texts_give_it(text) -> None:
    for form in (repr(text), json.dumps(text), quote(text, safe=""), quote_plus(text), str(text.encode())):
        assert MASK in Redactor().text(f"<{form}>", [text]), form


def test_credentials_in_an_address_are_hidden() -> None:
    assert Redactor().text("amqp://guest:hunter22@host//") == f"amqp://guest:{MASK}@host//"


def test_the_project_adds_names_to_the_built_in_ones(settings) -> None:
    settings.HARDENING = {"REDACT": ["ssn"]}

    assert project_redactor().value({"ssn": 1, "cardnumber": 2, "password": 3, "age": 4}) == {
        "ssn": MASK,
        "cardnumber": MASK,
        "password": MASK,
        "age": 4,
    }
