"""`python -m bench.replaying LETTERS RATE SECONDS`: bench/replay.py's process; prints its rows as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import django
import psutil
import redis

_LIMIT_SECONDS = 600.0
_TAKE = 1_000
_IDLE_SECONDS = 0.002
_QUEUE = "made-up-limited"
_GROUPS = 200
_OPEN_SHARE = 0.68
"""A little less than what is made: seven of ten."""


def main(letters: int, rate: int, seconds: float) -> list[dict[str, Any]]:
    """Make the letters, and measure."""
    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from dlq.operations.pace import Rate, Unlimited

    limited = int(rate * seconds)
    needed = int((letters + 2 * limited) / _OPEN_SHARE) + _GROUPS
    call_command("migrate", verbosity=0, skip_checks=True)
    call_command("dlq_make_letters", letters=needed, groups=_GROUPS, seed=1, verbosity=0, stdout=sys.stderr)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    half = Rate(per_second=float(rate))
    rows = [_replayed("without a pace", [_operation(letters, Unlimited(), "")], processes=1)]
    if limited:
        one = [_operation(limited, half, _QUEUE)]
        rows.append(_replayed(f"{rate} a second", one, processes=1, rate=rate))
        two = [_operation(limited // 2, half, _QUEUE) for _ in range(2)]
        rows.append(_replayed(f"{rate} a second, two operations", two, processes=2, rate=rate))
    return rows


def _operation(letters: int, pace: Any, queue: str) -> Any:
    """Started, of letters that no operation has."""
    from dlq.models import DeadLetter
    from dlq.operations import control
    from dlq.operations.making import make_operation

    made = make_operation(
        letters=DeadLetter.objects.open().filter(items__isnull=True),
        limit=letters,
        by="bench",
        pace=pace,
        queue=queue,
        force_queue=True,
        pause_above_percent=100,
        pause_on_same_cause=False,
    )
    control.start(made.pk, by="bench")
    assert made.total == letters, f"{made.total} of {letters} letters"
    return made


def _replayed(what: str, operations: list[Any], *, processes: int, rate: int | None = None) -> dict[str, Any]:
    from django.db.models import Max, Min

    from dlq.models import OperationItem

    wanted = sum(each.total for each in operations)
    command = [sys.executable, "-m", "django", "dlq_operate", "--until-idle"]
    senders = [subprocess.Popen(command) for _ in range(processes)]
    watched = [psutil.Process(each.pid) for each in senders]
    broker = redis.Redis.from_url(os.environ["BENCH_BROKER"])
    found: Counter[str] = Counter()
    arrivals: list[tuple[float, int]] = []
    cpu = 0.0
    until = time.monotonic() + _LIMIT_SECONDS
    queues = {_QUEUE} | set(_queues())
    while time.monotonic() < until:
        taken: list[Any] = [message for queue in queues for message in broker.rpop(queue, _TAKE) or ()]
        if taken:
            arrivals.append((time.monotonic(), len(taken)))
            found.update(json.loads(message)["headers"]["id"] for message in taken)
            continue
        running = [each for each in senders if each.poll() is None]
        if not running:
            break
        cpu = max(cpu, _cpu(watched))
        time.sleep(_IDLE_SECONDS)
    for each in senders:
        if each.poll() is None:
            each.kill()
        each.wait()
    sent = OperationItem.objects.filter(operation_id__in=[each.pk for each in operations])
    sent = sent.filter(sent_at__isnull=False)
    # By the sender's own record where it is as fast as it can, by what arrived where it keeps a rate.
    span = sent.aggregate(first=Min("staged_at"), last=Max("sent_at"))
    took = (span["last"] - span["first"]).total_seconds()
    per_second = sent.count() / took
    if rate is not None:
        per_second = _rate_of(arrivals)
    return {
        "what": what,
        "messages": found.total(),
        "per_second": round(per_second, 1),
        "off_percent": None if rate is None else round(100 * (per_second / rate - 1), 2),
        "cpu_microseconds": round(1e6 * cpu / max(1, found.total())),
        "doubled": found.total() - len(found),
        "missing": wanted - len(found),
        "seconds": round(took, 2),
    }


def _rate_of(arrivals: list[tuple[float, int]]) -> float:
    """Messages a second from the first to the last arrival; those of the first came before the span."""
    first, last = arrivals[0], arrivals[-1]
    return (sum(number for _, number in arrivals) - first[1]) / (last[0] - first[0])


def _cpu(processes: list[psutil.Process]) -> float:
    used = 0.0
    for each in processes:
        try:
            times = each.cpu_times()
        except psutil.Error:
            return 0.0
        used += times.user + times.system
    return used


def _queues() -> list[str]:
    from dlq.models import DeadLetter

    return list(DeadLetter.objects.order_by().values_list("queue", flat=True).distinct())


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
