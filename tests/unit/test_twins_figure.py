"""The figure of duplicates is one over all workers, bounded, and what could not be written is kept."""

from __future__ import annotations

import pytest

from hardening.store import LARGEST_BYTES, StoreUnavailable, encoded
from hardening.twins.figure import DUPLICATES_KEY, MOST_TASKS, OTHERS, Tally, duplicates_of
from tests.helpers.twin_messages import Clock, Switchable


@pytest.fixture
def store() -> Switchable:
    return Switchable(Clock())


def test_workers_add_to_one_figure(store: Switchable) -> None:
    for _ in range(2):
        tally = Tally()
        tally.ran_again("one")
        tally.not_run("one")
        tally.not_run("two")
        tally.write(store)
        assert not tally

    figure = {each.task: (each.ran_again, each.not_run) for each in duplicates_of(store)}
    assert figure == {"one": (2, 2), "two": (0, 2)}


def test_what_could_not_be_written_is_written_later(store: Switchable) -> None:
    tally = Tally()
    tally.ran_again("one")
    store.down = True
    with pytest.raises(StoreUnavailable):
        tally.write(store)
    assert tally

    store.down = False
    tally.write(store)
    assert [each.ran_again for each in duplicates_of(store)] == [1]


def test_the_figure_fits_into_a_document_whatever_tasks_are_called(store: Switchable) -> None:
    tally = Tally()
    for number in range(3 * MOST_TASKS):
        tally.not_run(f"{number} " + "\N{PILE OF POO}" * 1000)
    tally.write(store)

    found = duplicates_of(store)
    assert len(found) <= MOST_TASKS + 1
    assert sum(each.not_run for each in found) == 3 * MOST_TASKS
    assert OTHERS in [each.task for each in found]


def test_what_others_put_in_its_place_is_no_figure(store: Switchable) -> None:
    store.swap(DUPLICATES_KEY, version=0, value={"tasks": {"one": 3}}, ttl_seconds=9)
    assert duplicates_of(store) == []
    assert len(encoded({"tasks": {}})) < LARGEST_BYTES
