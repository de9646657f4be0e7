"""A request begins or goes back, never both, whoever claims it first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from hardening.shutdown import drain as drains
from hardening.shutdown.request import DrainableRequest, NotBegun


class Bare(DrainableRequest):
    """Without a message: only what a drain needs of it."""

    def __init__(self) -> None:
        self.accepted = 0

    def accept(self) -> None:
        try:
            self.on_accepted(1, 0.0)
        except AttributeError:  # Celery's own part, which wants a message.
            self.accepted += 1


@pytest.fixture(autouse=True)
def nobody_drains() -> Iterator[None]:
    before = drains.current_drain()
    yield
    drains.drain_with(before)  # type: ignore[arg-type]


def test_what_was_given_back_does_not_begin() -> None:
    request = Bare()
    assert request.claim_for_return()

    with pytest.raises(NotBegun):
        request.on_accepted(1, 0.0)

    assert request.is_given_back
    assert not request.has_begun


def test_what_has_begun_is_not_given_back() -> None:
    request = Bare()
    request.accept()

    assert request.has_begun
    assert not request.claim_for_return()


def test_it_is_given_back_once() -> None:
    request = Bare()

    assert [request.claim_for_return() for _ in range(3)] == [True, False, False]


def test_threads_that_claim_at_the_same_time_do_not_both_get_it() -> None:
    for _ in range(200):
        request = Bare()
        gate = threading.Barrier(3)
        returned: list[bool] = []

        def begin(request: Bare = request, gate: threading.Barrier = gate) -> None:
            gate.wait()
            with suppress(NotBegun):
                request.accept()

        def give_back(
            request: Bare = request, gate: threading.Barrier = gate, returned: list[bool] = returned
        ) -> None:
            gate.wait()
            returned.append(request.claim_for_return())

        threads = [threading.Thread(target=target) for target in (begin, give_back, give_back)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert request.accepted + sum(returned) == 1


class Asked:
    """A drain that was asked to begin."""

    def __init__(self) -> None:
        self.refused: list[Any] = []

    def refuses(self, request: Any) -> bool:
        self.refused.append(request)
        return True


def test_while_the_worker_drains_nothing_is_started() -> None:
    drain: Any = Asked()
    drains.drain_with(drain)
    request = Bare()

    assert request.revoked()
    assert drain.refused == [request]
