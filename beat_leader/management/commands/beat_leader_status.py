"""How Beat stands, for people and for monitors."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from beat_leader.cli import moment
from beat_leader.lock import LockUnavailable
from beat_leader.register import Sign
from beat_leader.status import BeatStatus, beat_status
from beat_leader.ticks import TicksUnavailable
from hardening.core.commands import app_with_tasks

NOT_HEALTHY, NOT_REACHED = 1, 2


class Command(BaseCommand):
    help = (
        "Who leads, who stands by, and what is wrong. Exit code 0: all is well; 1: something is not; 2: the "
        "stores do not answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--terms", type=int, default=5, help="so many terms of the past (default: 5)")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            status = beat_status(app_with_tasks(), terms=max(1, options["terms"]))
        except (LockUnavailable, TicksUnavailable) as exc:
            if options["json"]:
                self.stdout.write(json.dumps({"healthy": False, "problems": [str(exc)]}))
            raise CommandError(str(exc), returncode=NOT_REACHED) from exc
        self.stdout.write(json.dumps(_data(status)) if options["json"] else _text(status))
        if status.problems:
            raise CommandError("; ".join(status.problems), returncode=NOT_HEALTHY)


def _data(status: BeatStatus) -> dict[str, Any]:
    return {
        "healthy": not status.problems,
        "problems": list(status.problems),
        "now": status.now,
        "leader": status.standing.holder or None,
        "epoch": status.standing.epoch,
        "lease_seconds_left": status.standing.remaining_seconds,
        "leader_sign": None if status.leader is None else _sign(status, status.leader),
        "standbys": [_sign(status, each) for each in status.standbys],
        "silent": [_sign(status, each) for each in status.silent],
        "terms": [asdict(each) for each in status.terms],
        "late": [{"schedule": each.schedule, "due": each.due_ms / 1000} for each in status.late],
        "refusals": [
            {"at": at, "epoch": epoch, "holder": holder, "what": what}
            for at, epoch, holder, what in status.refusals
        ],
    }


def _sign(status: BeatStatus, sign: Sign) -> dict[str, Any]:
    return asdict(sign) | {"role": sign.role.value, "age_seconds": status.age(sign)}


def _text(status: BeatStatus) -> str:
    lines = [f"leader    {status.standing.holder or 'none'}, epoch {status.standing.epoch}"]
    if status.leader is not None:
        lines.append(
            f"          last tick {status.age(status.leader):.1f} s ago, "
            f"{status.leader.schedules} schedules, {status.leader.lag_seconds:.1f} s behind"
        )
    lines += [f"standby   {each.holder}, last tick {status.age(each):.1f} s ago" for each in status.standbys]
    lines += [f"silent    {each.holder}, last tick {status.age(each):.0f} s ago" for each in status.silent]
    for term in status.terms:
        end = "" if term.ended is None else f" to {moment(term.ended)}"
        lines.append(
            f"term      {term.epoch}: {term.holder}, from {moment(term.began)}{end} {term.end}".rstrip()
        )
    return "\n".join(lines)
