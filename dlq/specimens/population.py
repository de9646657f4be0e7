"""Causes of failures, how many letters each has left, and when. Pure, and the same for each seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

__all__ = ["MOST_CAUSES", "Cause", "causes", "failures", "sizes"]

_APPS = ("billing", "catalog", "orders", "shipping", "accounts", "search", "reports", "mail")
_JOBS = ("sync", "export", "settle", "notify", "refresh")
_VERBS = (
    *(
        "charge",
        "load",
        "store",
        "merge",
        "parse",
        "render",
        "send",
        "fetch",
        "split",
        "match",
        "close",
        "open",
    ),
    *(
        "check",
        "count",
        "price",
        "pack",
        "route",
        "label",
        "scan",
        "queue",
        "lock",
        "draft",
        "print",
        "index",
    ),
)
_NOUNS = (
    *("invoice", "parcel", "order", "refund", "address", "product", "picture", "price", "basket", "voucher"),
    *(
        "customer",
        "contract",
        "report",
        "message",
        "payment",
        "supplier",
        "stock",
        "return",
        "label",
        "batch",
    ),
)
_OWNERS = (
    *(
        "customer",
        "shop",
        "partner",
        "region",
        "warehouse",
        "season",
        "campaign",
        "branch",
        "carrier",
        "team",
    ),
    *(
        "family",
        "account",
        "market",
        "brand",
        "district",
        "course",
        "library",
        "garden",
        "harbour",
        "station",
    ),
)
# Class, message, reason, verdict, rule. {n} is another number in each letter.
_ERRORS = (
    (
        "requests.exceptions.ConnectTimeout",
        "no answer for item {n}",
        "retries_exhausted",
        "transient",
        "requests",
    ),
    ("django.db.utils.IntegrityError", "duplicate key ({n})", "permanent", "permanent", "django.db"),
    ("ValueError", "cannot read the amount of item {n}", "permanent", "permanent", "python"),
    ("KeyError", "'item-{n}'", "unclassified", "unknown", ""),
    (
        "made_up.errors.CardDeclined",
        "the card of customer {n} was declined",
        "permanent",
        "permanent",
        "task",
    ),
    ("redis.exceptions.ConnectionError", "connection {n} was closed", "max_age", "transient", "redis"),
    ("celery.exceptions.SoftTimeLimitExceeded", "SoftTimeLimitExceeded()", "time_limit", "", ""),
    ("TypeError", "unsupported operand for item {n}", "permanent", "permanent", "python"),
    ("made_up.errors.OutOfStock", "item {n} is sold out", "unclassified", "unknown", ""),
    (
        "smtplib.SMTPServerDisconnected",
        "connection of mail {n} lost",
        "retries_exhausted",
        "transient",
        "smtp",
    ),
    ("PermissionError", "[Errno 13] Permission denied: '/srv/{n}.pdf'", "permanent", "permanent", "python"),
    ("made_up.errors.UnknownCarrier", "carrier of parcel {n} is not known", "unclassified", "unknown", ""),
)
_QUEUES = ("made-up-default", "made-up-io", "made-up-mail", "made-up-reports", "made-up-slow")

MOST_CAUSES = len(_VERBS) * len(_NOUNS) * len(_OWNERS)

_SKEW = 1.05
"""Exponent of the sizes: of 2000 causes the first leaves a tenth of all letters, half of them one in ten
thousand or less."""

_CAUSE_BITS = 20

_SHORT_SHARE = 0.6
"""Of the causes, those that lasted for a few hours or days; the others go on for all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why tasks fail. Each has a function of its own, and so a fingerprint of its own."""

    task_name: str
    queue: str
    error_class: str
    message: str
    reason: str
    verdict: str
    rule: str
    module: str
    function: str
    tries: int


def causes(number: int, random: Random) -> list[Cause]:
    """So many, at most MOST_CAUSES, in the order of their size."""
    found = []
    for place in random.sample(range(MOST_CAUSES), number):
        rest, verb = divmod(place, len(_VERBS))
        owner, noun = divmod(rest, len(_NOUNS))
        app = random.choice(_APPS)
        error_class, message, reason, verdict, rule = random.choice(_ERRORS)
        found.append(
            Cause(
                task_name=f"made_up.{app}.tasks.{random.choice(_JOBS)}_{_NOUNS[noun]}",
                queue=random.choice(_QUEUES),
                error_class=error_class,
                message=message,
                reason=reason,
                verdict=verdict,
                rule=rule,
                module=f"made_up/{app}/{_NOUNS[noun]}s.py",
                function=f"{_VERBS[verb]}_{_NOUNS[noun]}_of_{_OWNERS[owner]}",
                tries=random.choice((1, 1, 2, 3)),
            )
        )
    return found


def sizes(letters: int, causes: int) -> list[int]:
    """How many letters each cause has: a few very many, most of them few, each at least one."""
    weights = [1 / (rank + 2) ** _SKEW for rank in range(causes)]
    total = sum(weights)
    spare = letters - causes
    found = [1 + int(spare * weight / total) for weight in weights]
    found[0] += letters - sum(found)
    return found


def failures(
    sizes: Sequence[int], *, until: datetime, days: float, random: Random
) -> Iterator[tuple[datetime, int]]:
    """When a letter failed, and at which cause, for all letters, the first one first."""
    span = int(days * 86_400_000)
    # One number each: a million pairs of objects would take ten times the memory.
    packed: list[int] = []
    for cause, size in enumerate(sizes):
        begin, length = 0, span
        if random.random() < _SHORT_SHARE:
            length = min(span, int(random.uniform(2, 72) * 3_600_000))
            begin = int(random.random() * (span - length))
        packed += [(begin + int(random.random() * length)) << _CAUSE_BITS | cause for _ in range(size)]
    packed.sort()
    start = until.astimezone(UTC) - timedelta(milliseconds=span)
    for each in packed:
        yield start + timedelta(milliseconds=each >> _CAUSE_BITS), each & (1 << _CAUSE_BITS) - 1
