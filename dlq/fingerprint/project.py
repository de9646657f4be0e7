"""Which frames are the project's own code. Pure: by the text of a path alone, so that every host agrees."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

__all__ = ["module_of", "root_package", "stem_of"]

_INSTALLED = re.compile(r"^(?:site|dist)-packages$|\.(?:egg|whl)$")
_OF_PYTHON = re.compile(r"^(?:python|pypy)\d+(?:\.\d+)?t?$")
_PYTHON_ZIP = re.compile(r"^python\d+\.zip$")
# C:\Python312\Lib, ...\Programs\Python\Python312\Lib, hostedtoolcache\Python\3.12.1\x64\Lib
_WINDOWS_LIBRARY = re.compile(r"\bpython[\d.]*(?:[\\/][\d.]+[\\/]x\d\d)?[\\/]lib[\\/]", re.IGNORECASE)
_SEPARATOR = re.compile(r"[\\/]+")
_SUFFIX = re.compile(r"\.pyc?$")


def root_package(task_name: str) -> str:
    """The package that a task is named after: it is the project, wherever it is installed."""
    return task_name.partition(".")[0]


@lru_cache(maxsize=1024)
def module_of(path: str, packages: frozenset[str], *, only: bool = False) -> str | None:
    """The module of a file of the project, as well as it can be told; None for other code.

    Other code is Python's own, what has no file, and what is installed (site-packages, dist-packages, eggs,
    wheels), if it is in none of `packages`. `only`: whatever is in none of them is other code.
    """
    if not path or path.startswith("<"):
        return None
    *folders, name = _SEPARATOR.split(path)
    name = _SUFFIX.sub("", name)
    at = _last_installed(folders)
    if at is not None:
        inner = folders[at + 1 :]
        return _dotted([*inner, name]) if (inner[0] if inner else name) in packages else None
    if _is_pythons(folders, path):
        return None
    for index in range(len(folders) - 1, -1, -1):
        if folders[index] in packages:
            return _dotted([*folders[index:], name])
    if only and name not in packages:
        return None
    return _dotted([*folders[-1:], name] if name == "__init__" else [name])


def stem_of(module: str) -> str:
    """The last part of a module's name: the same from whatever folder the module is imported."""
    return module.rpartition(".")[2]


def _last_installed(folders: list[str]) -> int | None:
    for index in range(len(folders) - 1, -1, -1):
        if _INSTALLED.search(folders[index]):
            return index
    return None


def _is_pythons(folders: list[str], path: str) -> bool:
    for index, folder in enumerate(folders):
        if _PYTHON_ZIP.match(folder):
            return True
        if index and folders[index - 1] in ("lib", "lib64") and _OF_PYTHON.match(folder):
            return True
    return _WINDOWS_LIBRARY.search(path) is not None


def _dotted(parts: Iterable[str]) -> str:
    return ".".join(part for part in parts if part and part != "__init__")
