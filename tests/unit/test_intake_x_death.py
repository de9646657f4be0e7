"""Why and where RabbitMQ gave a message up, as its headers tell, and what of them is no death at all."""

from __future__ import annotations

from typing import Any

import pytest

from hardening.core.reasons import Reason
from hardening.intake.x_death import Death, death_of

BITS = "0." * 25 + "1.0.1."


def entry(queue: str, reason: str, exchange: Any = "", key: Any = None) -> dict[str, Any]:
    return {
        "queue": queue,
        "reason": reason,
        "exchange": exchange,
        "routing-keys": [key or queue],
        "count": 1,
    }


def death(reason: Reason, said: str, queue: str = "orders", exchange: str = "", key: str = "") -> Death:
    return Death(reason=reason, queue=queue, exchange=exchange, routing_key=key or queue, said=said)


HOPS = [entry("celery_delayed_0", "expired", "celery_delayed_0"), entry("celery_delayed_2", "expired")]
PREFIXED = [entry("shop_celery_delayed_3", "expired", "shop_celery_delayed_27")]

CASES: dict[str, tuple[Any, Death | None]] = {
    "delivery limit": (
        {"x-death": [entry("orders", "delivery_limit")]},
        death(Reason.DELIVERY_LIMIT, "delivery_limit"),
    ),
    "expired": ({"x-death": [entry("orders", "expired")]}, death(Reason.EXPIRED, "expired")),
    "rejected": ({"x-death": [entry("orders", "rejected")]}, death(Reason.BROKER_REJECTED, "rejected")),
    "dropped": ({"x-death": [entry("orders", "maxlen")]}, death(Reason.BROKER_DROPPED, "maxlen")),
    "a reason of tomorrow": ({"x-death": [entry("orders", "bored")]}, death(Reason.BROKER_REJECTED, "bored")),
    "bytes": (
        {
            "x-death": [
                {"queue": b"orders", "reason": b"maxlen", "exchange": b"", "routing-keys": [b"orders"]}
            ]
        },
        death(Reason.BROKER_DROPPED, "maxlen"),
    ),
    "its exchange and key": (
        {"x-death": [entry("orders", "rejected", "shop", "order.new")]},
        death(Reason.BROKER_REJECTED, "rejected", exchange="shop", key="order.new"),
    ),
    "the newest of several": (
        {"x-death": [entry("orders", "maxlen"), entry("orders", "expired"), entry("wait", "expired")]},
        death(Reason.BROKER_DROPPED, "maxlen"),
    ),
    "delayed, then rejected": (
        {"x-death": [entry("orders", "rejected", "celery_delayed_delivery", f"{BITS}orders.eu"), *HOPS]},
        death(Reason.BROKER_REJECTED, "rejected", key="orders.eu"),
    ),
    "delayed on its way through hops that look newer": (
        {"x-death": [*HOPS, entry("orders", "rejected", "shop", f"{BITS}new")]},
        death(Reason.BROKER_REJECTED, "rejected", exchange="shop", key="new"),
    ),
    "delayed with a prefix, then expired": (
        {"x-death": [entry("orders", "expired"), *PREFIXED]},
        death(Reason.EXPIRED, "expired"),
    ),
    "a queue that is only called so": (
        {"x-death": [entry("celery_delayed_reports", "rejected")]},
        death(Reason.BROKER_REJECTED, "rejected", queue="celery_delayed_reports"),
    ),
    "only the short headers of RabbitMQ 4": (
        {
            "x-last-death-queue": "orders",
            "x-last-death-reason": "maxlen",
            "x-last-death-exchange": "shop",
            "x-first-death-queue": "celery_delayed_3",
        },
        death(Reason.BROKER_DROPPED, "maxlen", exchange="shop"),
    ),
    "only the first of an older one": (
        {"x-first-death-queue": "orders", "x-first-death-reason": "rejected"},
        death(Reason.BROKER_REJECTED, "rejected"),
    ),
    "only hops": ({"x-death": [*HOPS, *PREFIXED]}, None),
    "no death": ({"task": "a task"}, None),
    "no headers": (None, None),
    "no list": ({"x-death": "orders"}, None),
    "no entries": ({"x-death": [1, {}, {"queue": 3}]}, None),
    "no keys": (
        {"x-death": [{"queue": "orders", "reason": "expired", "routing-keys": "orders"}]},
        death(Reason.EXPIRED, "expired"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_newest_entry_that_is_no_hop_of_a_delay_tells_of_the_death(name: str) -> None:
    headers, expected = CASES[name]
    assert death_of(headers) == expected
