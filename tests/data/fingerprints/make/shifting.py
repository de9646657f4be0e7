"""The same code on other lines, as after any release: comments, imports and functions above it."""

from __future__ import annotations

from random import Random

__all__ = ["shifted"]

_BREAK = "\n\n\n"


def shifted(source: str, random: Random) -> str:
    """The source with lines inserted at its top and between its definitions; what it does stays the same."""
    first, *rest = source.split(_BREAK)
    top = "".join(f"# Note {random.randint(1, 999)}.\n" for _ in range(random.randint(0, 30)))
    imports = "".join(f"import {name}  # noqa\n" for name in ("os", "re", "math")[: random.randint(0, 3)])
    return _BREAK.join([top + imports + first, *(_inserted(random) + part for part in rest)])


def _inserted(random: Random) -> str:
    chance = random.random()
    if chance < 0.6:
        return ""
    if chance < 0.8:
        return "".join(f"# {random.randint(1, 9999)}\n" for _ in range(random.randint(1, 5))) + _BREAK
    return f"def _added_{random.randint(1, 10**6)}():\n    return {random.randint(1, 99)}{_BREAK}"
