"""The outcomes side by side: a table, and a histogram of the calls over time."""

from __future__ import annotations

from .storm import Outcome

__all__ = ["histogram", "table"]

BIN_SECONDS = 5
_WIDTH = 40


def table(outcomes: list[Outcome], *, mean: int) -> str:
    """One row a figure, one column a variant."""
    rows: list[tuple[str, list[object]]] = [
        ("", [outcome.variant for outcome in outcomes]),
        ("tasks done", [len(o.served) for o in outcomes]),
        ("done more than once", [sum(n > 1 for n in o.served.values()) for o in outcomes]),
        ("not done", [o.left for o in outcomes]),
        ("dead letters", [o.letters for o in outcomes]),
        ("calls in vain", [o.while_down for o in outcomes]),
        ("  until the outage opened", [o.before_opened for o in outcomes]),
        ("calls while probing", [o.while_probing for o in outcomes]),
        ("outage opened at", [_seconds(o.opened) for o in outcomes]),
        ("first success at", [_seconds(o.recovered) for o in outcomes]),
        ("last success at", [_seconds(o.last_success) for o in outcomes]),
        ("arrivals once recovered", [sum(o.arrivals(mean)) for o in outcomes]),
        ("  in bins", [len(o.arrivals(mean)) for o in outcomes]),
        ("  peak / mean", [f"{o.peak_over_mean(mean):.2f}" for o in outcomes]),
    ]
    return "\n".join(
        f"{name:<28}" + "".join(f"{'-' if value is None else value!s:>12}" for value in values)
        for name, values in rows
    )


def histogram(outcome: Outcome) -> str:
    """Calls of each five seconds since the downstream went down: `x` in vain, `#` served."""
    last = max((call.at for call in outcome.calls), default=0.0)
    bins = [[0, 0] for _ in range(int(last // BIN_SECONDS) + 1)]
    for call in outcome.calls:
        bins[max(0, int(call.at // BIN_SECONDS))][call.status == 200] += 1
    scale = max(1.0, max(map(sum, bins)) / _WIDTH)
    lines = [f"{outcome.variant}: calls in {BIN_SECONDS} s; x in vain, # served; quiet times left out"]
    for number, (vain, served) in enumerate(bins):
        if not vain + served:
            continue
        bar = "x" * _length(vain, scale) + "#" * _length(served, scale)
        lines.append(f"{number * BIN_SECONDS:>4} s {vain + served:>5} {bar}")
    return "\n".join(lines)


def _length(count: int, scale: float) -> int:
    return max(1, round(count / scale)) if count else 0


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f} s"
