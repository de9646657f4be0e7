"""HARDENING["ALERTS"], read. What is written there is never quoted: a webhook's URL is a secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hardening.core.alerts import Severity
from hardening.core.findings import Finding, Level
from hardening.retries.reading import Reader, positive_seconds_of
from hardening.retries.resolve import section_of

__all__ = ["LOG", "AlertRules", "ChannelRule", "alerts_of"]

CODE = "CH030"
MOST_CHANNELS = 6
LONGEST_NAME = 20
_KEYS = {"BACKEND", "OPTIONS", "NAME", "MIN_SEVERITY"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRule:
    """One entry of CHANNELS. Its options are not shown: they may be secrets."""

    name: str
    backend: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    min_severity: Severity = Severity.INFO


LOG = ChannelRule(name="log", backend="hardening.alerts.channels.log.LogChannel")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """What a project may set in HARDENING["ALERTS"]."""

    channels: tuple[ChannelRule, ...] = (LOG,)

    remind_every: float = 6 * 3600.0
    """An incident that lasts is told again after so many seconds."""

    muted: tuple[str, ...] = ()
    """Names of conditions that are not looked at."""

    base_url: str = ""
    """What stands before a link that is a path: the site, as in "https://shop.example"."""


def alerts_of(raw: Mapping[str, Any]) -> tuple[AlertRules, list[Finding]]:
    """The rules of alerts, and what is wrong with them."""
    readers: dict[str, Reader] = {
        "remind_every": positive_seconds_of,
        "muted": _names_of,
        "base_url": _base_of,
    }
    own = {key: value for key, value in raw.items() if str(key).lower() == "channels"}
    others = {key: value for key, value in raw.items() if key not in own}
    rules, findings = section_of(AlertRules, "ALERTS", others, readers, code=CODE)
    for given in own.values():
        channels, wrong = _channels_of(given)
        rules, findings = replace(rules, channels=channels or (LOG,)), [*findings, *wrong]
    return rules, findings


def _channels_of(given: Any) -> tuple[tuple[ChannelRule, ...], list[Finding]]:
    if given is None:
        return (), []
    if not isinstance(given, (list, tuple)) or len(given) > MOST_CHANNELS:
        return (), [_finding("", f"CHANNELS is no list of at most {MOST_CHANNELS} channels")]
    found: dict[str, ChannelRule] = {}
    findings = []
    for number, entry in enumerate(given):
        try:
            rule = _channel_of(entry)
            if rule.name in found:
                raise ValueError(f"a second channel is called {rule.name!r}: give it a NAME of its own")
        except ValueError as wrong:
            findings.append(_finding(f"[{number}]", str(wrong)))
        else:
            found[rule.name] = rule
    return tuple(found.values()), findings


def _channel_of(entry: Any) -> ChannelRule:
    if not isinstance(entry, Mapping):
        raise ValueError(f'a channel is a dict such as {{"BACKEND": "{LOG.backend}", "OPTIONS": {{}}}}')
    unknown = sorted(str(key) for key in entry if key not in _KEYS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(_KEYS))}")
    backend, options = entry.get("BACKEND"), entry.get("OPTIONS", {})
    if not isinstance(backend, str) or "." not in backend:
        raise ValueError("BACKEND is no dotted path of a class")
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        raise ValueError("OPTIONS is no dict of the class's arguments")
    name = entry.get("NAME", backend.rpartition(".")[2].lower().removesuffix("channel") or "channel")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"NAME is no text of 1 to {LONGEST_NAME} characters")
    return ChannelRule(
        name=name, backend=backend, options=options, min_severity=_severity_of(entry.get("MIN_SEVERITY"))
    )


def _severity_of(value: Any) -> Severity:
    if value is None:
        return Severity.INFO
    names = {each.name.lower(): each for each in Severity}
    found = value if isinstance(value, Severity) else names.get(str(value).lower())
    if found is None:
        raise ValueError(f"MIN_SEVERITY is none of {', '.join(names)}")
    return found


def _names_of(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(v, str) for v in value):
        raise ValueError("must be a list of names of conditions")
    return tuple(value)


def _base_of(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith(("http://", "https://")):
        raise ValueError('must be the URL of the site, such as "https://shop.example"')
    return value.rstrip("/")


def _finding(where: str, what: str) -> Finding:
    return Finding(
        code=CODE,
        level=Level.ERROR,
        what=what,
        where=f'settings.HARDENING["ALERTS"]["CHANNELS"]{where}',
        remedy="Correct the value, or remove it for the default: the log.",
    )
