"""What the demo publishes: good jobs and bad ones, in fixed proportions and a fixed, mixed order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

from sample_project.demo.pictures import BROKEN_PICTURES, GOOD_PICTURES

ACCOUNTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind of job: its line in the ledger, its task, and how it is expected to end once all is mended.

    `share` is its part of the whole; there is always at least one, and never more than `at_most`.
    """

    kind: str
    task: str
    share: float = 0.0
    at_most: int | None = None
    can_succeed: bool = True


THUMBNAIL = "sample_project.catalog.tasks.make_thumbnail"
SHEET = "sample_project.catalog.tasks.make_contact_sheet"
WEBHOOK = "sample_project.notifications.tasks.deliver_webhook"
RECEIPT = "sample_project.billing.tasks.send_receipt"
STATEMENT = "sample_project.billing.tasks.write_statement"
MISTAKES = "sample_project.mistakes.tasks"

CASES = (
    Case(kind="thumbnail", task=THUMBNAIL, share=0.30),
    Case(kind="thumbnail, broken file", task=THUMBNAIL, share=0.03, can_succeed=False),
    Case(kind="contact sheet, killed", task=SHEET, at_most=1),
    Case(kind="contact sheet, worker killed", task=SHEET, at_most=1),
    Case(kind="webhook, 200", task=WEBHOOK, share=0.20),
    Case(kind="webhook, 503 once", task=WEBHOOK, share=0.06),
    Case(kind="webhook, 503", task=WEBHOOK, share=0.02),
    Case(kind="webhook, 429", task=WEBHOOK, share=0.02),
    Case(kind="webhook, 404", task=WEBHOOK, share=0.02),
    Case(kind="webhook, too slow", task=WEBHOOK, share=0.02),
    Case(kind="webhook, dropped", task=WEBHOOK, share=0.02),
    Case(kind="receipt, 250", task=RECEIPT, share=0.15),
    Case(kind="receipt, 451 once", task=RECEIPT, share=0.04),
    Case(kind="receipt, 451", task=RECEIPT, share=0.01),
    Case(kind="receipt, 550", task=RECEIPT, share=0.02),
    Case(kind="statement", task=STATEMENT, share=0.08),
    Case(kind="mistake, bug", task=f"{MISTAKES}.total_of", share=0.01, can_succeed=False),
    Case(kind="mistake, result", task=f"{MISTAKES}.make_report", share=0.01, can_succeed=False),
    Case(
        kind="mistake, too long",
        task=f"{MISTAKES}.import_catalogue",
        at_most=2,
        share=0.01,
        can_succeed=False,
    ),
    Case(kind="mistake, retries", task=f"{MISTAKES}.wait_for_parcel", share=0.01, can_succeed=False),
    Case(kind="mistake, unclassified", task=f"{MISTAKES}.ask_supplier", share=0.01, can_succeed=False),
    Case(kind="mistake, crash", task=f"{MISTAKES}.read_barcode", at_most=1, can_succeed=False),
    Case(kind="message, malformed", task=THUMBNAIL, at_most=1, can_succeed=False),
    Case(kind="message, unknown task", task=f"{MISTAKES}.not_deployed", at_most=1, can_succeed=False),
)
FEWEST = len(CASES)
CASE_OF = {case.kind: case for case in CASES}
KILLED = "contact sheet, killed"
WORKER_KILLED = "contact sheet, worker killed"
MALFORMED = "message, malformed"
UNKNOWN = "message, unknown task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One message to publish. Its task id is its delivery key."""

    key: str
    case: Case
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def plan(number: int, *, webhooks: str, seed: int = 7) -> list[Job]:
    """`number` jobs, mixed. `webhooks` is the address of the HTTP receiver."""
    if number < FEWEST:
        raise ValueError(f"at least {FEWEST} jobs, one of each kind")
    dice = random.Random(seed)
    cases = [case for case, times in amounts(number).items() for _ in range(times)]
    dice.shuffle(cases)
    # These first, so that they are at work while there is still a queue behind them.
    cases.sort(key=lambda case: {KILLED: 0, WORKER_KILLED: 1}.get(case.kind, 2))
    serial = count(1)
    return [make(case, next(serial), webhooks=webhooks, dice=dice) for case in cases]


def trickle(*, webhooks: str) -> Iterator[Job]:
    """Jobs without end, for a shop that stays open. None of them needs anybody to kill a process."""
    dice = random.Random()
    cases = [case for case in CASES if case.share]
    weights = [case.share for case in cases]
    while True:
        [case] = dice.choices(cases, weights)
        yield make(case, dice.randrange(10_000, 100_000_000), webhooks=webhooks, dice=dice)


def amounts(number: int) -> dict[Case, int]:
    """How many of each case make `number` in all: the largest case takes up the rounding."""
    times = {case: max(1, round(case.share * number)) for case in CASES}
    times = {case: min(n, case.at_most or n) for case, n in times.items()}
    for case in sorted(CASES, key=lambda case: -case.share):
        rest = number - sum(times.values())
        times[case] = max(1, times[case] + rest)
    return times


def make(case: Case, serial: int, *, webhooks: str, dice: random.Random) -> Job:
    """One job of this case; `serial` makes its input its own."""
    return Job(key=str(uuid4()), case=case, args=_arguments(case, serial, webhooks, dice))


def _arguments(case: Case, serial: int, webhooks: str, dice: random.Random) -> tuple[Any, ...]:
    order = f"order-{serial}"
    amount = f"{dice.randrange(100, 50_000) / 100:.2f}"
    manner = case.kind.partition(", ")[2]
    match case.task:
        case _ if case.kind == MALFORMED:
            return ()
        case task if task == SHEET:
            return (list(GOOD_PICTURES),)
        case task if task == THUMBNAIL:
            return (dice.choice(BROKEN_PICTURES if manner else GOOD_PICTURES),)
        case task if task == WEBHOOK:
            path = {
                "200": "ok", "503 once": "busy-once", "503": "busy",
                "404": "gone", "too slow": "slow", "dropped": "drop",
                # Retry-After has two forms: seconds, and a date.
                "429": "limited" if serial % 2 else "limited-until",
            }[manner]  # fmt: skip
            return (f"{webhooks}/{path}/{order}", {"order": order, "status": "paid", "amount": amount})
        case task if task == RECEIPT:
            mailbox = {"250": "ok", "451 once": "busy-once", "451": "busy", "550": "unknown"}[manner]
            return (f"{mailbox}-{serial}@customer.example", order, amount)
        case task if task == STATEMENT:
            return (order, f"account-{serial % ACCOUNTS}", amount)
        case _:
            return {
                "bug": ([{"price": None, "quantity": serial}],),
                "result": ("2026-01",),
                "too long": (60,),
                "retries": (f"parcel-{serial}",),
                "unclassified": (order,),
                "crash": (dice.choice(GOOD_PICTURES),),
                "unknown task": (order,),
            }[manner]
