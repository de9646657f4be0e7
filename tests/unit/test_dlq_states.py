"""The states of a letter allow these ways and no others."""

from __future__ import annotations

import pytest

from dlq.states import CLOSED, LIVE, State, may_become, sources_of

O, G, R, D = State.OPEN, State.REPLAYING, State.REPLAYED, State.DISCARDED  # noqa: E741


@pytest.mark.parametrize("now", State)
@pytest.mark.parametrize("then", State)
def test_the_table_of_transitions(now, then) -> None:
    allowed = {(O, G), (O, D), (G, R), (G, O), (G, G), (O, R), (D, O)}

    assert may_become(now, then) == ((now, then) in allowed)


def test_a_replayed_letter_never_opens_again_and_a_discarded_one_by_restoring_only() -> None:
    assert set(CLOSED) == {R, D}
    assert set(LIVE) | set(CLOSED) == set(State)
    assert set(LIVE) & set(CLOSED) == set()
    assert sources_of(O) == (G, D)
    assert sources_of(D) == (O,)
    assert sources_of(R) == (O, G)
