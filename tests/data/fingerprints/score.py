"""How well fingerprints group the corpus: `python -m tests.data.fingerprints.score [train|test]`.

Over all pairs of letters of a split: of those with one fingerprint, how many have one label (precision); of
those with one label, how many have one fingerprint (recall); and F1 of the two.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

from dlq.fingerprint import fingerprint_of

__all__ = ["Score", "fingerprint_of_record", "records_of", "score"]

# All that a fingerprint may know of a letter.
_INPUTS = ("task_name", "reason", "error_class", "message", "traceback")


@dataclass(frozen=True, slots=True)
class Score:
    """Of pairs."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def records_of(split: str) -> list[dict[str, Any]]:
    """The letters of a split."""
    text = (Path(__file__).parent / f"{split}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def fingerprint_of_record(record: dict[str, Any]) -> str:
    """The value of the fingerprint, with room for the slowest machine."""
    return fingerprint_of(**{name: record[name] for name in _INPUTS}, budget_seconds=60.0).value


def score(records: Iterable[dict[str, Any]]) -> Score:
    """Of these letters."""
    both: Counter[tuple[str, str]] = Counter()
    for record in records:
        both[record["label"], fingerprint_of_record(record)] += 1
    labels: Counter[str] = Counter()
    values: Counter[str] = Counter()
    for (label, value), letters in both.items():
        labels[label] += letters
        values[value] += letters
    right = _pairs(both.values())
    return Score(right / (_pairs(values.values()) or 1), right / (_pairs(labels.values()) or 1))


def mistakes(records: Iterable[dict[str, Any]]) -> list[str]:
    """Labels that have several fingerprints, and fingerprints that have several labels."""
    by_label: dict[str, set[str]] = defaultdict(set)
    by_value: dict[str, set[str]] = defaultdict(set)
    for record in records:
        value = fingerprint_of_record(record)
        by_label[record["label"]].add(value)
        by_value[value].add(record["label"])
    split = [f"{label}: {len(values)} fingerprints" for label, values in by_label.items() if len(values) > 1]
    merged = [f"one fingerprint: {', '.join(sorted(each))}" for each in by_value.values() if len(each) > 1]
    return [*sorted(split), *sorted(merged)]


def _pairs(sizes: Iterable[int]) -> int:
    return sum(comb(size, 2) for size in sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("split", choices=("train", "test"), nargs="?", default="train")
    split = parser.parse_args().split
    records = records_of(split)
    found = score(records)
    if split == "train":
        print(*mistakes(records), sep="\n")  # Of `test` nobody should know them: it is only measured on.
    print(f"{split}: {len(records)} letters, {len({each['label'] for each in records})} labels")
    print(f"precision {found.precision:.4f} recall {found.recall:.4f} F1 {found.f1:.4f}")


if __name__ == "__main__":
    main()
