"""The known seeds are runs that the kit understands."""

from __future__ import annotations

from hardening.chaos.__main__ import parser
from tests.chaos.seeds import known_seeds


def test_every_known_seed_is_a_run() -> None:
    assert all(parser().parse_args(options).seed is not None for options in known_seeds())


def test_comments_and_empty_lines_are_none(tmp_path) -> None:
    path = tmp_path / "seeds.txt"
    path.write_text("# why\n\n--seed 3 --tasks 60  # chords\n")

    assert known_seeds(path) == [["--seed", "3", "--tasks", "60"]]
