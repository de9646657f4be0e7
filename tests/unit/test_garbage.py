"""No garbage is collected in a block of `uncollected`, and the collector is as it was after it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from hardening.core.garbage import uncollected


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was_on else gc.disable)()


def test_the_collector_is_away_until_the_last_block_is_left_however_it_is_left() -> None:
    with uncollected():
        with pytest.raises(ZeroDivisionError), uncollected():
            raise ZeroDivisionError
        assert not gc.isenabled()

    assert gc.isenabled()


def test_a_collector_that_the_project_has_switched_off_stays_off() -> None:
    gc.disable()

    with uncollected():
        pass

    assert not gc.isenabled()


def test_a_child_that_is_forked_meanwhile_has_its_collector() -> None:
    with uncollected():
        child = os.fork()
        if not child:
            on = gc.isenabled()
            with uncollected():
                off = not gc.isenabled()
            os._exit(0 if on and off and gc.isenabled() else 1)
        _, status = os.waitpid(child, 0)
        assert not gc.isenabled()

    assert os.waitstatus_to_exitcode(status) == 0
