"""`python -m tests.data.fingerprints.make`: make the corpus anew. Minutes; needs Python 3.11, 3.12 and 3.13.

Another run draws the same values, and has other process ids, times and addresses in its texts: the files
differ. What is in the repository is frozen: its test split is pinned by a test.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from .deployments import DEPLOYMENTS, REQUIREMENTS
from .fleet import letters_of
from .installing import base_of, install_project, make_environment, packages_of
from .plan import KINDS, SEED, wanted
from .record import Record, neutral_places, record_of
from .services import services
from .split import labels_for_test

_HERE = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environments", type=Path, help="keep and reuse the virtual environments in here")
    parser.add_argument("--keep", type=Path, help="work in here, and leave it")
    parser.add_argument("--only", nargs="*", help="names of deployments, to try it out: nothing is written")
    parser.add_argument("--into", type=Path, default=_HERE, help="directory of the two files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corpus-") as temporary:
        directory = options.keep or Path(temporary)
        records = _records(directory, options.environments or directory / "environments", options.only)
    print(_summary(records))
    if not options.only:
        _write(records, options.into)


def _records(directory: Path, environments: Path, only: list[str] | None) -> list[Record]:
    pythons = {version: make_environment(environments / version, version) for version in REQUIREMENTS}
    wishes = wanted()
    records: list[tuple[str, int, Record]] = []
    directory.mkdir(parents=True, exist_ok=True)
    with services(directory) as running:
        for number, deployment in enumerate(DEPLOYMENTS):
            if only and deployment.name not in only:
                continue
            root = directory / deployment.name / "code"
            install_project(deployment, root)
            environment = environments / deployment.python
            python = pythons[deployment.python]
            places = neutral_places(
                deployment, root, packages_of(environment, deployment.python), environment, base_of(python)
            )
            mine = [wish for wish in wishes if wish.deployment == deployment.name]
            letters = letters_of(deployment, python, root, running, mine, number)
            for wish in mine:
                letter = letters.get(wish.task_id)
                if letter is None:
                    print(f"{deployment.name}: no letter of {wish.case.label}", file=sys.stderr)
                    continue
                records.append((wish.case.label, wish.variant, record_of(letter, wish.case.label, places)))
            print(f"{deployment.name}: {len(letters)} of {len(mine)}", file=sys.stderr)
    ordered = sorted(records, key=lambda entry: entry[:2])
    return [{"id": f"f{i:04}", **record} for i, (_, _, record) in enumerate(ordered, 1)]


def _write(records: list[Record], into: Path) -> None:
    kept_for_test = labels_for_test((record["label"] for record in records), KINDS, SEED)
    for name in ("train", "test"):
        mine = [record for record in records if (record["label"] in kept_for_test) == (name == "test")]
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in mine)
        (into / f"{name}.jsonl").write_text(text, encoding="utf-8")


def _summary(records: list[Record]) -> str:
    labels = Counter(record["label"] for record in records)
    pythons = Counter(record["python"] for record in records)
    most = max(labels.values(), default=0)
    return f"{len(records)} records of {len(labels)} labels, {most} at most; {dict(pythons)}"


if __name__ == "__main__":
    main()
