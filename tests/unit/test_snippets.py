"""What is offered to paste is valid, and holds a hostile class name as nothing but a name."""

from __future__ import annotations

import ast
import shlex

import pytest

from dlq.verdicts import UNKNOWN, judgement
from hardening.classification.classifier import Classifier
from hardening.core.snippets import explain_command, settings_snippet

HOSTILE = [
    'x"><script>alert(1)</script>',
    '": 1}}; import os; os.system("x"); {"',
    "'); __import__('os').system('x') #",
    "both ' and \"",
    "ends in a backslash\\",
    "two\nlines\r\x00",
    "\u202eright to left\u2028",
    "caf\u00e9.\U0001f4a5",
    "{braces} %s \\N{BULLET}",
]


def test_a_snippet_reads_as_the_settings_are_written() -> None:
    assert settings_snippet(["acme.client.Busy", "Odd"]) == (
        "HARDENING = {\n"
        "    # ... the entries that are there\n"
        '    "CLASSIFY": {\n'
        '        "acme.client.Busy": "transient",  # or "permanent"\n'
        '        "Odd": "transient",  # or "permanent"\n'
        "    },\n"
        "}"
    )


@pytest.mark.parametrize("names", [[], *([name] for name in HOSTILE), HOSTILE])
def test_a_snippet_is_one_literal_with_exactly_these_names(names) -> None:
    (statement,) = ast.parse(settings_snippet(names)).body

    assert isinstance(statement, ast.Assign)
    assert ast.literal_eval(statement.value) == {"CLASSIFY": dict.fromkeys(names, "transient")}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_snippet_has_no_character_that_only_pretends_to_be_another(name) -> None:
    assert settings_snippet([name]).replace("\n", "").isprintable()


@pytest.mark.parametrize("name", ["acme.client.Busy", "ValueError", "acme.make.<locals>.Busy", "acme.Zürich"])
def test_the_command_names_the_class_as_one_word_of_a_shell(name) -> None:
    assert shlex.split(explain_command(name)) == ["manage.py", "hardening_explain", name]


@pytest.mark.parametrize("name", [*HOSTILE, "", "--settings=evil", "a b", "a;b", "$(a)", "a\n"])
def test_no_command_is_offered_for_what_is_no_class_name(name) -> None:
    assert explain_command(name) == ""


@pytest.mark.parametrize(
    ("verdict", "rule", "text"),
    [
        ("transient", "http.status 503", "transient by http.status 503"),
        ("unknown", "", "unknown"),
        ("unknown", "none", "unknown"),
        ("", "", ""),
        ("", "a rule", ""),
    ],
)
def test_a_judgement_in_words(verdict, rule, text) -> None:
    assert judgement(verdict, rule) == text


def test_the_words_for_unknown_are_the_classifiers() -> None:
    verdict = Classifier().judge(Exception("odd"))

    assert (verdict.kind, verdict.rule) == (UNKNOWN, "none")
