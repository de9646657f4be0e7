"""Virtual environments of several Pythons, with the libraries and a copy of hardening; the shop's code."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

import hardening

from .deployments import REQUIREMENTS, Deployment
from .shifting import shifted

__all__ = ["base_of", "install_project", "make_environment", "packages_of"]

_PROJECT = Path(__file__).parent / "project"


def interpreter(version: str) -> str:
    """A Python of this version: of pyenv, else from PATH."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    found = str(of_pyenv[-1]) if of_pyenv else shutil.which(f"python{version}")
    if found is None:
        raise SystemExit(f"no Python {version} was found")
    return found


def make_environment(directory: Path, version: str) -> Path:
    """The Python of an environment; one that is there is taken as it is, but for hardening."""
    python = directory / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter(version), "-m", "venv", str(directory)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS[version]], check=True)
    copy = packages_of(directory, version) / "hardening"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(Path(hardening.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return python


def packages_of(directory: Path, version: str) -> Path:
    return directory / "lib" / f"python{version}" / "site-packages"


def base_of(python: Path) -> str:
    """Where the standard library of an environment's Python lies."""
    code = "import os; print(os.path.dirname(os.__file__))"
    return subprocess.run(
        [str(python), "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def install_project(deployment: Deployment, root: Path) -> None:
    """Write the shop below `root`, on other lines than in any other deployment."""
    random = Random(deployment.name)
    for template in sorted(_PROJECT.rglob("*.txt")):
        target = root / "shop" / template.relative_to(_PROJECT).with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        source = template.read_text()
        target.write_text(shifted(source, random) if target.suffix == ".py" and source else source)
