"""The report of a run in words and as data, and two runs side by side."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .causes import UNKNOWN
from .ledger import Fate, Ledger
from .options import PLAIN, Options
from .overlay import LEASE_SECONDS
from .plan import Fault
from .run import Outcome

__all__ = ["again", "as_data", "rendered", "side_by_side"]

_MOST_SHOWN = 20
KILLS = (Fault.KILL_CHILD, Fault.KILL_WORKER)


def rendered(outcome: Outcome) -> str:
    """All but the last line."""
    ledger = outcome.ledger
    parts = [
        _table(ledger),
        f"{outcome.options.variant}: {outcome.ended} after {outcome.seconds:.0f} s",
        f"faults: {_counts(_hits(outcome))}"
        + (f"; {outcome.not_struck} not reached" if outcome.not_struck else ""),
        f"dead by reason: {_counts(ledger.reasons) or 'none'}",
        f"duplicates by cause: {_counts(Counter(each.cause for each in ledger.duplicates)) or 'none'}",
    ]
    if outcome.poison_starts:
        starts = Counter(outcome.poison_starts.values())
        parts.append(
            "starts of a poison task: " + ", ".join(f"{n} x {times}" for times, n in sorted(starts.items()))
        )
    if outcome.publish_failures:
        parts.append(f"publishes that failed and were repeated or given up: {outcome.publish_failures}")
    if ledger.not_accepted:
        parts.append(f"not accepted by the broker, and not published: {len(ledger.not_accepted)}")
    if ledger.both:
        parts.append(f"succeeded, and a letter is open all the same: {len(ledger.both)}")
    if ledger.left:
        parts.append(f"messages left of tasks that are settled: {ledger.left}")
    if ledger.unanswered:
        parts.append(f"their result does not say what became of them: {len(ledger.unanswered)}")
    return "\n".join([*parts, *_troubles(outcome)])


def again(options: Options) -> str:
    """The command that runs it again."""
    words = [
        *("python", "-m", "hardening.chaos", "--seed", str(options.seed), "--broker", options.broker),
        *("--tasks", str(options.tasks), "--pool", options.pool, "--workers", str(options.workers)),
        *("--concurrency", str(options.concurrency), "--database", options.database),
    ]
    for name in ("app", "settings", "send"):
        if value := getattr(options, name):
            words += [f"--{name}", value]
    if options.without:
        words += ["--without", ",".join(options.without)]
    if options.faults is not None:
        words += ["--faults", ",".join(f"{name}={number}" for name, number in options.faults.items())]
    if options.lease_seconds != LEASE_SECONDS:
        words += ["--lease", str(options.lease_seconds)]
    if options.as_configured:
        words.append("--as-configured")
    return shlex.join(words)


def as_data(outcome: Outcome) -> dict[str, Any]:
    """For report.json."""
    ledger, options = outcome.ledger, outcome.options
    return {
        "seed": options.seed,
        "variant": options.variant,
        "broker": options.broker,
        "pool": options.pool,
        "database": outcome.database,
        "workers": options.workers,
        "concurrency": options.concurrency,
        "line": ledger.line(options.seed),
        "balances": ledger.balances,
        "published": ledger.published,
        **{str(fate): ledger.of(fate) for fate in Fate},
        "duplicates": len(ledger.duplicates),
        "kinds": {
            row.kind: {
                "published": row.published,
                **{str(fate): n for fate, n in row.fates.items()},
                "duplicates": row.duplicates,
            }
            for row in ledger.rows
        },
        "reasons": dict(ledger.reasons),
        "causes": dict(Counter(each.cause for each in ledger.duplicates)),
        "duplicate": [
            {"key": each.key, "kind": each.kind, "cause": each.cause, "evidence": each.evidence}
            for each in ledger.duplicates
        ],
        "hits": _hits(outcome),
        "kills": sum(hit.name in KILLS for hit in outcome.hits),
        "not_struck": outcome.not_struck,
        "poison_starts": dict(Counter(outcome.poison_starts.values())),
        "publish_failures": outcome.publish_failures,
        "not_accepted": len(ledger.not_accepted),
        "left": ledger.left,
        "both": len(ledger.both),
        "unanswered": len(ledger.unanswered),
        "seconds": round(outcome.seconds, 1),
        "ended": outcome.ended,
        "history": dict(outcome.history),
        "again": again(options),
    }


def side_by_side(hardened: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    """Two reports of one seed."""
    lines = [f"{'':<28}{'hardened':>12}{'plain':>12}"]
    names = ["published", *(str(fate) for fate in Fate), "duplicates", "left", "kills", "seconds"]
    lines += [f"{name:<28}{_cell(hardened.get(name)):>12}{_cell(plain.get(name)):>12}" for name in names]
    kinds = {*hardened["kinds"], *plain["kinds"]}
    lines += [
        f"{kind + ', not settled':<28}{_unsettled(hardened, kind):>12}{_unsettled(plain, kind):>12}"
        for kind in sorted(kinds)
    ]
    lines.append(f"hardened: {hardened['ended']}; plain: {plain['ended']}")
    return "\n".join(lines)


def _unsettled(report: Mapping[str, Any], kind: str) -> int:
    row = report["kinds"].get(kind, {})
    return int(row.get(str(Fate.PENDING), 0) + row.get(str(Fate.LOST), 0))


def _cell(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def _hits(outcome: Outcome) -> dict[str, int]:
    return dict(Counter(str(hit.name) for hit in outcome.hits))


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))


def _table(ledger: Ledger) -> str:
    head = ("kind", "published", *(str(fate) for fate in Fate), "duplicates")
    rows: list[Sequence[Any]] = [head]
    rows += [
        (row.kind, row.published, *(row.fates.get(fate, 0) for fate in Fate), row.duplicates)
        for row in ledger.rows
    ]
    rows.append(("all", ledger.published, *(ledger.of(fate) for fate in Fate), len(ledger.duplicates)))
    return "\n".join(_cells(row) for row in rows)


def _cells(row: Iterable[Any]) -> str:
    first, *rest = row
    return f"{first:<24}" + "".join(f"{cell if cell else '.':>11}" for cell in rest)


def _troubles(outcome: Outcome) -> list[str]:
    ledger = outcome.ledger
    lines: list[str] = []
    for fate in (Fate.LOST, Fate.PENDING):
        keys = [key for key, each in ledger.fates.items() if each is fate]
        lines += _shown(fate, keys, outcome)
    lines += _shown("never published, and yet seen", list(ledger.strangers), outcome)
    if outcome.options.variant != PLAIN:
        unknown = [each for each in ledger.duplicates if each.cause == UNKNOWN]
        lines += [
            f"ran twice for no known cause: {each.key} ({each.kind}): {each.evidence}" for each in unknown
        ]
        lines += _shown("no answer", list(ledger.unanswered), outcome)
    return lines


def _shown(what: str, keys: list[str], outcome: Outcome) -> list[str]:
    if outcome.options.variant == PLAIN:
        return []
    kinds = {key: item.kind.value for item in outcome.plan.items for key in item.keys}
    details = {key: dict(item.details) for item in outcome.plan.items for key in item.keys}
    lines = []
    for key in keys[:_MOST_SHOWN]:
        lines.append(f"{what}: {key} ({kinds.get(key, '?')} {details.get(key) or ''})")
        lines += [f"    {line}" for line in outcome.history.get(key, [])[:12]]
    if len(keys) > _MOST_SHOWN:
        lines.append(f"{what}: {len(keys) - _MOST_SHOWN} more, see report.json")
    return lines
