"""Prints what is in force: settings, tasks with their resolved policy, opt-outs with reasons."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from hardening.core.apps import NoCeleryApp, celery_app
from hardening.retries.durations import text_of
from hardening.status import status_of


class Command(BaseCommand):
    """`manage.py hardening_status [--json]`."""

    help = "Show the delivery policy that is in force for each setting and task."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            app = celery_app()
        except NoCeleryApp as exc:
            raise CommandError(str(exc)) from exc
        app.loader.import_default_modules()
        status = status_of(app)
        if options["json"]:
            self.stdout.write(json.dumps(status, indent=2, default=str))
            return
        for line in _lines(status):
            self.stdout.write(line)


def _lines(status: Mapping[str, Any]) -> Iterator[str]:
    yield f"app {status['app']}   mode {status['mode']}   broker {status['broker']}"
    yield f"dead letters go to {status['sink']}"
    yield f"rules of the project's own: {status['project_rules']}"
    grace = status["grace_seconds"]
    lease = status["lease"]
    if lease:
        yield f"lease {text_of(lease['seconds'])}, renewed every {text_of(lease['renew_every'])}"
        atomic = lease["atomic_take"]
        yield "messages are " + (
            "taken and leased in one step" if atomic else "popped, and LEASED AFTERWARDS"
        )
    yield "after SIGTERM running tasks " + (
        "finish, however long they take: set SHUTDOWN GRACE below what your supervisor waits"
        if grace is None
        else f"have {text_of(grace)}, then they are cut and given back"
    )
    yield "\nSettings"
    for row in status["settings"]:
        yield f"  {row['name']:<50} {row['value']!r:<12} set by {row['set_by']}"
    yield "\nTasks"
    for task in status["tasks"]:
        yield from _task(task)
    yield from _traffic(status["traffic"])
    yield from _duplicates(status["duplicates"])
    yield from _revoked(status["revoked"])
    yield f"\nFindings: {len(status['findings'])}"
    for finding in status["findings"]:
        yield f"  {finding['level'].upper()} {finding['code']}: {finding['what']}"
        yield f"      remedy: {finding['remedy']}"


def _task(task: Mapping[str, Any]) -> Iterator[str]:
    acks = "late ack" if task["acks_late"] else "EARLY ACK"
    limit = task["time_limit"] or task["soft_time_limit"]
    retries = task["retries"]
    how = "retried on its own" if retries["automatic"] else "retried only when it asks"
    yield f"  {task['name']:<50} {acks:<10} limit {f'{limit} s' if limit else 'none':<8} {how}"
    if task["opt_out"]:
        yield f"    opted out: {task['opt_out']}"
    span = retries["span_seconds"]
    yield f"    {retries['schedule']}" + (f"; in all {_span(*span)}" if span else "")
    if retries["dependency"]:
        yield f"    depends on {retries['dependency']}"
    if retries["rules"]:
        yield f"    rules of its own: {retries['rules']}"


def _traffic(traffic: Mapping[str, Any]) -> Iterator[str]:
    yield f"\nOutages and retry budgets, in {traffic['store']}"
    if traffic["problem"]:
        yield f"  THE STORE DOES NOT ANSWER, everything is admitted: {traffic['problem']}"
    now = traffic["now"]
    for each in traffic["outages"]:
        yield (
            f"  {each['dependency']} is DOWN for {text_of(max(0.0, now - each['open_since']))}: "
            f"{each['failures']} failures in a row, of {', '.join(each['tasks'])}"
        )
        left = each["next_probe_at"] - now
        due = f"next probe in {text_of(left)}" if left > 0 else "next probe as soon as a task asks"
        yield f"    {due if each['prober'] is None else 'probed now by ' + each['prober']}"
    for each in traffic["runs"]:
        yield (
            f"  {each['dependency']}: {each['failures']} failures in a row, of {', '.join(each['tasks'])}; "
            "no outage yet"
        )
    for each in traffic["budgets"]:
        over = f"; OVER, retries come {text_of(each['wait_seconds'])} later" if each["wait_seconds"] else ""
        yield f"  budget of {each['task']}: {each['tokens']:.0f} of {each['capacity']:.0f} retries left{over}"
    if traffic["budgets_not_read"]:
        yield f"  the budgets of {traffic['budgets_not_read']} more tasks were not read"
    if not (traffic["problem"] or traffic["outages"] or traffic["runs"]):
        yield "  no dependency is down"


def _duplicates(duplicates: Mapping[str, Any]) -> Iterator[str]:
    yield "\nCopies of messages, in the last 30 days"
    if duplicates["problem"]:
        yield f"  THE STORE DOES NOT ANSWER, copies are started: {duplicates['problem']}"
    for each in duplicates["tasks"]:
        yield f"  {each['task']:<50} succeeded again {each['ran_again']}, not run again {each['not_run']}"
    if not (duplicates["problem"] or duplicates["tasks"]):
        yield "  none"


def _revoked(revoked: Mapping[str, Any]) -> Iterator[str]:
    yield f"\nRevokes, remembered for {text_of(revoked['expires_seconds'])}"
    if revoked["problem"]:
        yield f"  THE STORE DOES NOT ANSWER, workers know of those that they hear: {revoked['problem']}"
    else:
        yield f"  {revoked['count']} of at most {revoked['most']}; manage.py hardening_revoked list"


def _span(low: float, high: float) -> str:
    return text_of(low) if text_of(low) == text_of(high) else f"{text_of(low)} to {text_of(high)}"
