"""Lists groups of dead letters, shows one, and says of them what people decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_aware, is_naive, make_aware, make_naive

from dlq.cli import as_json, operator, positive
from dlq.conf import database_alias
from dlq.groups import triage
from dlq.groups.figures import ORDERS, TODO, by_facet, is_behind, listed, shown_count
from dlq.groups.shown import brief_groups, full_group
from dlq.groups.states import GroupState
from dlq.models import LetterGroup
from dlq.models.group import FACETS


class Command(BaseCommand):
    help = "List groups of dead letters, show one, acknowledge, snooze, resolve, reopen, assign, note."
    # Letters must be within reach also while a check fails: it may be why they are there.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        self._add_reading(actions)
        for name, text in (
            ("acknowledge", "somebody is at it"),
            ("snooze", "leave alone until a time or a release"),
            ("resolve", "its cause is gone, or will be with a release"),
            ("reopen", "back to open"),
            ("assign", "say whose it is"),
            ("note", "replace the note"),
        ):
            action = actions.add_parser(name, help=text)
            action.add_argument("fingerprints", nargs="+", metavar="FINGERPRINT", help="or its beginning")
            action.add_argument("--json", action="store_true", help="print one JSON object")
            if name == "snooze":
                until = action.add_mutually_exclusive_group(required=True)
                until.add_argument("--until", help="a time, such as 2026-12-24T08:00")
                until.add_argument("--release", default="", help="until a worker of this release runs")
            if name == "resolve":
                action.add_argument("--in-release", default="", help="the release in which it is mended")
                action.add_argument(
                    "--replay", action="store_true", help="replay its open letters once that release runs"
                )
            if name == "assign":
                action.add_argument("--owner", required=True, help="whose it is; empty: nobody's")
            if name == "note":
                action.add_argument("--text", required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        reading: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "list": self._list,
            "show": self._show,
            "by": self._by,
        }
        reading.get(options["action"], self._say)(options)

    def _add_reading(self, actions: Any) -> None:
        listing = actions.add_parser("list", help="groups, the newest letters first")
        listing.add_argument("--state", choices=[*(state.value for state in GroupState), TODO])
        listing.add_argument("--task", help="name of the task")
        listing.add_argument("--owner", help="whose they are")
        listing.add_argument("--order", choices=list(ORDERS), default="last")
        listing.add_argument("--limit", type=positive, default=50, help="at most so many (default: 50)")
        showing = actions.add_parser("show", help="one group")
        showing.add_argument("fingerprint", metavar="FINGERPRINT", help="or its beginning")
        grouping = actions.add_parser("by", help="all letters by a facet")
        grouping.add_argument("facet", choices=FACETS)
        grouping.add_argument("--limit", type=positive, default=50, help="at most so many (default: 50)")
        for each in (listing, showing, grouping):
            each.add_argument("--json", action="store_true", help="print JSON")

    def _list(self, options: Mapping[str, Any]) -> None:
        groups = listed(
            state=options["state"], task=options["task"], owner=options["owner"], order=options["order"]
        )
        rows = brief_groups(list(groups[: options["limit"]]))
        if options["json"]:
            self.stdout.write(as_json(rows))
            return
        for row in rows:
            self.stdout.write(
                f"{row['fingerprint']}  {row['state']:<12} {row['letters']:>7} letters, "
                f"{shown_count(row['open'] + row['open_is_more'])} open, {row['last_24_hours']} in 24 h  "
                f"{row['last_seen_at']}  {_shown(row['task'])}  "
                f"{_shown(row['error_class'] or row['reason'])}: {_shown(row['title'])}"
            )
        self.stderr.write(
            f"{len(rows)} groups{'; some letters are not counted yet: dlq_tend' if is_behind() else ''}"
        )

    def _show(self, options: Mapping[str, Any]) -> None:
        shown = full_group(_group(options["fingerprint"]))
        if options["json"]:
            self.stdout.write(as_json(shown))
            return
        for name, value in shown.items():
            if value not in (None, "", [], {}):
                self.stdout.write(f"{name}: {_shown(str(value))}")

    def _by(self, options: Mapping[str, Any]) -> None:
        found = by_facet(options["facet"], most=options["limit"])
        rows: list[dict[str, Any]] = [
            {
                options["facet"]: row.value,
                "letters": row.letters,
                "groups": row.groups,
                "todo": row.todo,
                "last_seen_at": row.last_seen_at.isoformat(),
            }
            for row in found.rows
        ]
        if options["json"]:
            self.stdout.write(as_json({"rows": rows, "more": found.more}))
            return
        for row in rows:
            self.stdout.write(
                f"{row['letters']:>7} letters in {row['groups']} groups, {row['todo']} of them to do  "
                f"{row['last_seen_at']}  "
                f"{_shown(row[options['facet']] or '-')}"
            )
        self.stderr.write(f"{len(rows)} values{', and others' if found.more else ''}")

    def _say(self, options: Mapping[str, Any]) -> None:
        names = list(dict.fromkeys(_group(each).pk for each in options["fingerprints"]))
        try:
            changed = _change(names, options)
        except ValueError as exc:
            raise CommandError(str(exc)) from exc
        if options["json"]:
            self.stdout.write(as_json({"changed": changed, "given": len(names)}))
        else:
            self.stdout.write(f"{changed} of {len(names)} groups changed")
        if changed < len(names):
            raise CommandError(f"{len(names) - changed} of {len(names)} groups were not in a state for this")


def _change(names: list[str], options: Mapping[str, Any]) -> int:
    by = operator()
    action = options["action"]
    if action == "snooze":
        until = _moment(options["until"]) if options["until"] else None
        return triage.snooze(names, by=by, until=until, release=options["release"])
    if action == "resolve":
        return triage.resolve(names, by=by, in_release=options["in_release"], replay=options["replay"])
    if action == "assign":
        return triage.assign(names, owner=options["owner"], by=by)
    if action == "note":
        return triage.note(names, text=options["text"], by=by)
    return (triage.acknowledge if action == "acknowledge" else triage.reopen)(names, by=by)


def _group(text: str) -> LetterGroup:
    """The one group whose fingerprint begins so. Raises CommandError."""
    groups = LetterGroup.objects.using(database_alias()).order_by("pk")
    found = list(groups.filter(pk=text) or groups.filter(pk__startswith=text)[:2])
    if not found:
        raise CommandError(f"there is no group {text!r}; dlq_groups list shows them")
    if len(found) > 1:
        raise CommandError(f"more than one group begins with {text!r}")
    return found[0]


def _moment(text: str) -> datetime:
    moment = parse_datetime(text)
    if moment is None:
        raise ValueError(f"{text!r} is no time such as 2026-12-24T08:00")
    if settings.USE_TZ and is_naive(moment):
        return make_aware(moment)
    return make_naive(moment) if not settings.USE_TZ and is_aware(moment) else moment


def _shown(name: str) -> str:
    # From a message: what is not printable may be a command to the terminal.
    return name if name.isprintable() else repr(name)
