"""The examples of codes are of rules that exist, and each of them decides something."""

from __future__ import annotations

from hardening.classification.builtin import BUILTIN
from hardening.classification.project import project_rules
from hardening.typical_codes import TYPICAL, typical_codes


def test_every_built_in_rule_that_decides_by_a_code_has_examples() -> None:
    deciding = {rule.name for rule in BUILTIN if rule.decide is not None}

    assert deciding - TYPICAL.keys() == set()
    assert TYPICAL.keys() - {rule.name for rule in BUILTIN} == set()


def test_a_rule_decides_each_of_its_examples() -> None:
    for rule in BUILTIN:
        if rule.decide is not None:
            assert [code for code in typical_codes(rule) if rule.decide(code) is None] == [], rule.name


def test_a_projects_rule_shows_the_codes_that_it_lists() -> None:
    (listed, plain), findings = project_rules(
        {"a.Busy": {"codes": {409: "transient", "E7": "permanent"}}, "a.Other": "transient"}
    )

    assert findings == []
    assert (typical_codes(listed), typical_codes(plain)) == (("409", "E7"), ())
