"""The ledger of a worker: an acknowledgement that Redis does not take holds nothing else up."""

from __future__ import annotations

from typing import Any

from hardening.leases.holdings import Holdings, NewsOf


class Store:
    """What the ledger asks of Redis."""

    errors = (OSError,)

    def __init__(self) -> None:
        self.down = False
        self.given_away: set[str] = set()
        self.asked = 0

    def settle(self, tag: str) -> bool:
        self.asked += 1
        if self.down:
            raise OSError("no answer for seconds")
        return tag not in self.given_away


def holding(*tags: str) -> tuple[Holdings, Store]:
    holdings, store = Holdings(), Store()
    holdings.store = store  # type: ignore[assignment]
    for tag in tags:
        holdings.enter(tag, list_key="queue", message=b"")
        holdings.delivered[tag] = f"message {tag}"
    return holdings, store


def test_after_one_that_was_not_taken_the_others_only_wait() -> None:
    holdings, store = holding(*"abcdef")
    store.down = True

    for tag in "abcdef":
        holdings.settle(tag)

    assert store.asked == 1
    assert holdings.unsent() == len(holdings) == 6
    store.down = False
    holdings.send_unsent()
    assert (holdings.unsent(), len(holdings)) == (0, 0)


def test_a_late_acknowledgement_is_told_at_once_and_read_later() -> None:
    holdings, store = holding("a", "b")
    told: list[Any] = []
    holdings.on_late = told.append
    store.given_away.add("a")

    holdings.settle("a")
    holdings.settle("b")

    assert told == ["message a"]
    assert [(news.of, news.tag) for news in holdings.news] == [(NewsOf.LATE, "a")]
