"""The names in the rules for libraries are those of real classes: a typing error would never match."""

from __future__ import annotations

from importlib import import_module

import pytest

from hardening.classification.builtin import aws, broker, grpc, http, pydantic, redis, smtp, stripe
from hardening.classification.classifier import class_name

# Of versions that are not installed here: stripe before 8, pydantic 1.
ELSEWHERE = ("stripe.error.", "pydantic.error_wrappers.")


@pytest.mark.parametrize(
    "module", [aws, broker, grpc, http, pydantic, redis, smtp, stripe], ids=lambda module: module.__name__
)
def test_every_class_of_a_rule_is_an_error_of_its_library_by_its_real_name(module):
    names = {name for rule in module.RULES for name in rule.classes if not name.startswith(ELSEWHERE)}
    for name in names:
        owner, _, attribute = name.rpartition(".")
        assert class_name(getattr(import_module(owner), attribute)) == name


def test_every_rule_has_a_name_of_its_own_and_says_why():
    rules = [
        rule for module in (aws, broker, grpc, http, pydantic, redis, smtp, stripe) for rule in module.RULES
    ]
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(rule.why.endswith(".") for rule in rules)
