"""Fixtures of tests of twins: a clock that stands, a store on it, and no request of Celery's left over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery.worker import state

from hardening.shutdown.request import OPEN

from .twin_messages import Clock, Switchable


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Switchable:
    return Switchable(clock)


@pytest.fixture(autouse=True)
def nothing_runs() -> Iterator[None]:
    state.reset_state()
    OPEN.clear()
    yield
    state.reset_state()
    OPEN.clear()
