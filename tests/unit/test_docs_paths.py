"""The page of Celery's paths names tests and codes that exist, and every row has its end."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "explanation" / "celery-paths.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| in plain Celery |")
]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_test_that_is_named_exists(path: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in functions_of(path)


def test_every_code_that_is_named_is_one_of_ours() -> None:
    code = "\n".join(
        path.read_text() for app in ("hardening", "beat_leader") for path in (ROOT / app).rglob("*.py")
    )

    assert [each for each in sorted(set(re.findall(r"CH\d{3}", TEXT))) if f'"{each}"' not in code] == []


def test_every_row_ends_in_one_way_and_is_shown_by_a_test() -> None:
    assert len(ROWS) > 60
    for row in ROWS:
        assert len(row) == 3, row
        path, end, here = row
        assert end in ("fixed", "impossible", "harmless"), path
        assert "`tests/" in here, path
        assert end != "impossible" or re.search(r"(ERROR|WARNING)[:,] CH\d{3}", here), path


def test_the_facts_that_decided_the_design_are_all_there() -> None:
    numbers = [re.match(r"\*\*(\d+)\.\*\*", row[0]) for row in ROWS]

    assert [int(found[1]) for found in numbers if found] == list(range(1, 15))
