"""`python -m bench [--pairs N] [--only TEXT]`: prints the table and writes build/bench.json."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from importlib.metadata import version
from pathlib import Path

from bench.throughput import CASES, Case, Outcome, measure
from hardening.testing.servers import RabbitMQServer, RedisServer, ServerMissing

OUTPUT = Path("build/bench.json")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="pairs of runs for each row (default 5)")
    parser.add_argument("--only", default="", help="only rows that contain this text, e.g. 'redis gevent'")
    options = parser.parse_args()
    outcomes: list[Outcome] = []
    print(
        "Tasks a second of one worker, all late acks. plain: prefetch and connections as hardened has them;\n"
        "defaults: only late acks set (one run, gevent only). Alternating pairs, median (min to max).\n"
        "cpu: processor time of the whole worker for a task, hardened / plain.\n"
        f"{'broker':<9} {'pool':<8} {'task':<12}{'plain':>9} {'hardened':>9}  {'hardened / plain':<32}"
        f"{'cpu':>8}{'defaults':>9}"
    )
    with RedisServer() as redis_server:
        for broker in ("redis", "rabbitmq"):
            cases = [c for c in CASES if c.broker == broker]
            cases = [c for c in cases if options.only in f"{c.broker} {c.pool} {c.task}"]
            if not cases:
                continue
            if broker == "redis":
                outcomes += [
                    _run(c, redis_server.url_for(0), redis_server.url_for(1), options.pairs) for c in cases
                ]
                continue
            try:
                with RabbitMQServer() as rabbit:
                    outcomes += [_run(c, rabbit.url, redis_server.url_for(1), options.pairs) for c in cases]
            except ServerMissing as missing:
                print(f"rabbitmq rows left out: {missing}")
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(
        json.dumps({"versions": _versions(), "throughput": [o.as_dict() for o in outcomes]}, indent=2)
    )
    print(f"written to {OUTPUT}")


def _run(case: Case, broker_url: str, result_url: str, pairs: int) -> Outcome:
    outcome = measure(case, broker_url=broker_url, result_url=result_url, pairs=pairs)
    plain, hardened, defaults = (_median(outcome.rates[name]) for name in ("plain", "hardened", "defaults"))
    ratios = outcome.ratios
    ratio = (
        f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} pairs)"
        if ratios
        else "-"
    )
    cpu = f"{outcome.cpu_ratio:.3f}" if outcome.cpu_ratio else "-"
    problems = "; ".join(problem.splitlines()[0] for problem in outcome.problems)
    print(
        f"{case.broker:<9} {case.pool:<8} {case.task:<12}"
        f"{plain:>9} {hardened:>9}  {ratio:<32}{cpu:>8}{defaults:>9}  {problems}".rstrip(),
        flush=True,
    )
    return outcome


def _median(rates: list[float]) -> str:
    return f"{statistics.median(rates):.1f}" if rates else "-"


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("celery", "kombu", "django", "redis", "gevent")}
    return {"python": platform.python_version(), **packages}


main()
