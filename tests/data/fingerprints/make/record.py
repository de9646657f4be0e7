"""From a letter to a record of the corpus: its own words, and neutral names for the places of a machine."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from hardening.core.letter import DeadLetter

from .deployments import Deployment

__all__ = ["Record", "neutral_places", "record_of"]

Record = dict[str, str]


def neutral_places(
    deployment: Deployment, root: Path, packages: Path, environment: Path, stdlib: str
) -> Mapping[str, str]:
    """What is replaced by what; the longest first."""
    prefix = str(Path(deployment.packages).parents[2])
    places = {
        str(root): deployment.root,
        str(packages): deployment.packages,
        str(environment): prefix,
        stdlib: deployment.stdlib,
        socket.gethostname(): deployment.host,
    }
    base = Path(stdlib).parents[1]
    if len(base.parts) > 3:  # Else it is one of the system's own, and part of many other paths.
        places[str(base)] = str(Path(deployment.stdlib).parents[1])
    return dict(sorted(places.items(), key=lambda item: -len(item[0])))


def record_of(letter: DeadLetter, label: str, places: Mapping[str, str]) -> Record:
    """The record, without its id. Raises ValueError if a place of this machine is left in it."""
    last = letter.last_attempt
    record = {
        "label": label,
        "task_name": letter.task_name,
        "reason": letter.reason,
        "error_class": last.error_class,
        "message": _mapped(last.message, places),
        "traceback": _mapped(last.traceback, places),
        "python": letter.versions["python"],
        "host": letter.worker,
        "release": letter.release,
    }
    _refuse_leaks(record, [place for place, neutral in places.items() if place != neutral])
    return record


def _mapped(text: str, places: Mapping[str, str]) -> str:
    # In one pass: a neutral place may begin as one of this machine does. Whole words: hosts have short names.
    anyone = "|".join(map(re.escape, places))
    return re.sub(rf"(?<![\w.-])(?:{anyone})(?![\w-])", lambda found: places[found[0]], text)


def _refuse_leaks(record: Record, places: Sequence[str]) -> None:
    ours = [*(place for place in places if "/" in place), f"{Path.home()}/", str(Path.cwd())]
    for field, text in record.items():
        leaks = [place for place in ours if place in text]
        if leaks:
            raise ValueError(f"{record['label']}: {leaks} in its {field}")
