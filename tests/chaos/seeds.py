"""Runs the known seeds, then a new one with the options given: `make chaos` without SEED."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["known_seeds", "main"]

SEEDS = Path(__file__).with_name("seeds.txt")


def known_seeds(path: Path = SEEDS) -> list[list[str]]:
    """The options of each run."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [shlex.split(line) for line in lines if line]


def main(options: Sequence[str]) -> int:
    """The highest exit status of all runs; the last line is that of the new seed."""
    return max(_run(each) for each in (*known_seeds(), options))


def _run(options: Sequence[str]) -> int:
    print(f"==> python -m hardening.chaos {shlex.join(options)}", flush=True)
    return abs(subprocess.run([sys.executable, "-m", "hardening.chaos", *options], check=False).returncode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
