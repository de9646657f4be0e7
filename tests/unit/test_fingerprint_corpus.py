"""The corpus of labelled failures is complete, split by label, and its test split is what it was."""

from __future__ import annotations

import json
import re
from collections import Counter
from hashlib import sha256
from pathlib import Path

from hardening.core.reasons import Reason
from tests.data.fingerprints.make.plan import KINDS

DIRECTORY = Path(__file__).parents[1] / "data" / "fingerprints"
FROZEN = "dfaad90cbfe815ff666b6ec9290f3081ebd9d3645934926f85a171bcd10e6964"
SPLITS = {
    name: [
        json.loads(line) for line in (DIRECTORY / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    for name in ("train", "test")
}
RECORDS = [*SPLITS["train"], *SPLITS["test"]]
FIELDS = {
    "id",
    "label",
    "task_name",
    "reason",
    "error_class",
    "message",
    "traceback",
    "python",
    "host",
    "release",
}
MAY_BE_EMPTY = {"message", "traceback"}
OF_A_MACHINE = re.compile(r"(?<![\w.-])/(?:root|work|tmp)(?![\w-])|\.pyenv|corpus-\w")


def test_the_test_split_is_frozen() -> None:
    assert sha256((DIRECTORY / "test.jsonl").read_bytes()).hexdigest() == FROZEN


def test_there_are_many_failures_of_many_labels_in_both_splits() -> None:
    for records in SPLITS.values():
        sizes = Counter(record["label"] for record in records)
        assert len(records) >= 300
        assert len(sizes) >= 90
        assert max(sizes.values()) >= 10


def test_no_label_is_in_both_splits() -> None:
    train, test = ({record["label"] for record in records} for records in SPLITS.values())

    assert train & test == set()


def test_every_kind_of_failure_is_in_both_splits() -> None:
    train, test = ({KINDS[record["label"]] for record in records} for records in SPLITS.values())

    assert train == test == set(KINDS.values())


def test_every_record_is_complete() -> None:
    assert [record["id"] for record in RECORDS if record.keys() != FIELDS] == []
    assert [
        (record["id"], name)
        for record in RECORDS
        for name, value in record.items()
        if not isinstance(value, str) or not (value or name in MAY_BE_EMPTY)
    ] == []
    assert [record["id"] for record in RECORDS if not (record["message"] or record["traceback"])] == []
    assert {record["reason"] for record in RECORDS} <= set(Reason)
    assert len({record["id"] for record in RECORDS}) == len(RECORDS)


def test_no_record_names_a_place_of_the_machine_that_made_it() -> None:
    assert [record["id"] for record in RECORDS if OF_A_MACHINE.search(json.dumps(record))] == []
