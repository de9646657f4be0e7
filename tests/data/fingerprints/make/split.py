"""Which labels are for training and which for the test: by label, half of each kind, by a fixed seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from random import Random

__all__ = ["labels_for_test"]


def labels_for_test(labels: Iterable[str], kinds: Mapping[str, str], seed: int) -> set[str]:
    """Half of the labels of each kind; of an odd number the larger half, and then the smaller, in turns."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for label in sorted(set(labels)):
        by_kind[kinds[label]].append(label)
    chosen: set[str] = set()
    for i, kind in enumerate(sorted(by_kind)):
        found = by_kind[kind]
        chosen |= set(Random(f"{seed} {kind}").sample(found, (len(found) + i % 2) // 2))
    return chosen
