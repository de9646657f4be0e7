"""The settings of hardening: every name, type, unit, default and reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings

from .alerts.rules import AlertRules, alerts_of
from .core.findings import Finding, Level
from .core.parking import DEAD_LETTER_QUEUE
from .core.settings import read_settings
from .delayed.rules import DelayedRules, delayed_of
from .intake.rules import IntakeRules, intake_of
from .leases.terms import Lease, lease_of
from .poison.terms import Poison, poison_of
from .retries.budget import Budget
from .retries.outage import Outage
from .retries.policy import RetryPolicy
from .retries.resolve import budget_of, outage_of, project_layer
from .revoked.rules import Rules, rules_of
from .shutdown.grace import Shutdown, shutdown_of

__all__ = ["ENFORCE", "REPORT", "HardeningSettings", "load_settings"]

ENFORCE = "enforce"
REPORT = "report"
_CODE = "CH001"


@dataclass(frozen=True, slots=True, kw_only=True)
class HardeningSettings:
    """What a project may set in `settings.HARDENING`. Safe with nothing set at all."""

    mode: str = ENFORCE
    """"enforce", or "report": change nothing, stop nothing, and say what would be done."""

    app: str | None = None
    """Dotted path of the Celery app that commands, admin and replay act on. None: the default app."""

    early_ack: Mapping[str, Any] = field(default_factory=dict)
    """Task-name pattern -> reason. Those tasks are acknowledged before they run: a crash loses them."""

    dead_letter_sink: Mapping[str, Any] | None = None
    """{"BACKEND": dotted path, "OPTIONS": {...}}. None: the sink of an installed app, else the broker."""

    dead_letter_queue: str = DEAD_LETTER_QUEUE
    """The durable broker queue where letters wait while their store is down."""

    store: Mapping[str, Any] | None = None
    """{"BACKEND": dotted path, "OPTIONS": {...}}: where workers share small state. None: the broker where it
    is Redis, else the database."""

    classify: Mapping[str, Any] | tuple[Any, ...] = field(default_factory=dict)
    """Dotted path of an error class -> "permanent", "transient", "unknown", or a mapping with more; or a
    sequence of rules. Asked before the built-in rules."""

    retry: Mapping[str, Any] = field(default_factory=dict)
    """When failed tasks are tried again: "BASE" "5 s", "CAP" "30 m", "FLOOR" "1 s", "JITTER" True, or
    "DELAYS" such as "0 s, 30 s"; "RETRY_AFTER_CAP" "30 m". How often: "MAX_ATTEMPTS" 10, "MAX_AGE" "1 d",
    "UNKNOWN_ATTEMPTS" 3, "AUTOMATIC" True. Tasks and rules may say otherwise."""

    outage: Mapping[str, Any] = field(default_factory=dict)
    """When a dependency is taken for down, and how it is probed: "FAILURES" in a row 20, "FIRST_WAIT" "5 s",
    "LONGEST_WAIT" "60 s", "PROBE_LEASE" "60 s"."""

    retry_budget: Mapping[str, Any] = field(default_factory=dict)
    """How many retries each task may have over all workers: "SHARE" 0.2 of its starts, and "PER_SECOND" 10
    more. Those beyond come later."""

    lease: Mapping[str, Any] = field(default_factory=dict)
    """On Redis, when the work of a silent worker is given to others: "SECONDS" "12 s", "RENEW_EVERY" "4 s",
    "WEDGED_AFTER" "30 m" (without a sign of life of the worker's main loop), "ATOMIC_TAKE" True."""

    revoked: Mapping[str, Any] = field(default_factory=dict)
    """How long a revoke is remembered, over restarts of all workers: "EXPIRES" "7 d", longer than the longest
    countdown; and how many are: "MOST" 50000, those that expire first go first."""

    shutdown: Mapping[str, Any] = field(default_factory=dict)
    """What a worker does when it is told to stop: "GRACE" None, or how long running tasks may finish, such as
    "25 s"; then they are cut and given back. A few seconds less than your supervisor waits."""

    delayed: Mapping[str, Any] = field(default_factory=dict)
    """Tasks that are due later than "HORIZON" "12 s" wait in a store and in no worker: "STORE" None for the
    broker where it is Redis, else the database, or {"BACKEND": dotted path, "OPTIONS": {...}}."""

    intake: Mapping[str, Any] = field(default_factory=dict)
    """Messages that are no task: "OFFERS" 0, how often one of an unknown task goes back to its queue before
    it is kept, each time after "OFFER_AFTER" "10 s"; "MOST_BYTES" 67108864 of a body; "KEEP_EXPIRED" True."""

    poison: Mapping[str, Any] = field(default_factory=dict)
    """When a task that kills its process is not started again: after "LIMIT" 3 deaths in "WINDOW" "72 h". It
    waits "BASE" "1 s" after the first and twice as long after each, at most "CAP" "60 s". "LAST_TRY_QUEUE"
    None, or the queue of its last try. A task may say otherwise by `poison_limit` and `poison_queue`."""

    keep_chord_members_seconds: float = 86_400.0
    """How long the messages of members of chords that succeeded are kept in the store, so that a chord that
    failed can be run again as a whole. They are deleted as soon as its body is published. 0: none is kept."""

    alerts: Mapping[str, Any] = field(default_factory=dict, metadata={"secret": True})
    """Who is told of incidents: "CHANNELS", a list of {"BACKEND": dotted path, "OPTIONS": {...}, "NAME",
    "MIN_SEVERITY"}, without it the log; again after "REMIND_EVERY" "6 h"; "MUTED" () names conditions that
    are not looked at; "BASE_URL" "" stands before links."""

    release: str = ""
    """The project's release, kept with each letter."""

    redact: tuple[str, ...] = ()
    """Parameter names and dotted paths to hide, on top of the built-in ones."""

    @property
    def retry_layer(self) -> RetryPolicy:
        """`retry`, read; what could not be used of it is left out."""
        return project_layer(self.retry)[0]

    @property
    def lease_terms(self) -> Lease:
        """`lease`, read."""
        return lease_of(self.lease)[0]

    @property
    def poison_terms(self) -> Poison:
        """`poison`, read."""
        return poison_of(self.poison)[0]

    @property
    def outage_rules(self) -> Outage:
        """`outage`, read."""
        return outage_of(self.outage)[0]

    @property
    def revoked_rules(self) -> Rules:
        """`revoked`, read."""
        return rules_of(self.revoked)[0]

    @property
    def budget_rules(self) -> Budget:
        """`retry_budget`, read."""
        return budget_of(self.retry_budget)[0]

    @property
    def delayed_rules(self) -> DelayedRules:
        """`delayed`, read."""
        return delayed_of(self.delayed)[0]

    @property
    def intake_rules(self) -> IntakeRules:
        """`intake`, read."""
        return intake_of(self.intake)[0]

    @property
    def alert_rules(self) -> AlertRules:
        """`alerts`, read."""
        return alerts_of(self.alerts)[0]

    @property
    def shutdown_rules(self) -> Shutdown:
        """`shutdown`, read."""
        return shutdown_of(self.shutdown)[0]


def load_settings() -> tuple[HardeningSettings, list[Finding]]:
    """The project's settings and what is wrong with them."""
    raw = getattr(django_settings, "HARDENING", None)
    settings, findings = read_settings(HardeningSettings, raw, name="HARDENING", code=_CODE)
    if settings.mode not in (ENFORCE, REPORT):
        findings.append(
            Finding(
                code=_CODE,
                level=Level.ERROR,
                what=f"unknown mode {settings.mode!r}; {ENFORCE!r} is used",
                where='settings.HARDENING["MODE"]',
                remedy=f'Set "{ENFORCE}" or "{REPORT}".',
            )
        )
    for pattern, reason in settings.early_ack.items():
        if not isinstance(reason, str) or not reason.strip():
            findings.append(
                Finding(
                    code="CH003",
                    level=Level.ERROR,
                    what=f"the opt-out for tasks {pattern!r} gives no reason",
                    where=f'settings.HARDENING["EARLY_ACK"][{pattern!r}]',
                    remedy="Write as its value why a crash may lose these tasks, or remove it.",
                )
            )
    findings += project_layer(settings.retry)[1]
    findings += outage_of(settings.outage)[1]
    findings += lease_of(settings.lease)[1]
    findings += budget_of(settings.retry_budget)[1]
    findings += poison_of(settings.poison)[1]
    findings += delayed_of(settings.delayed)[1]
    findings += shutdown_of(settings.shutdown)[1]
    findings += intake_of(settings.intake)[1]
    findings += rules_of(settings.revoked)[1]
    findings += alerts_of(settings.alerts)[1]
    return settings, findings + _classify_findings(settings)


def _classify_findings(settings: HardeningSettings) -> list[Finding]:
    # Reading the rules imports what they name, which may need models: whoever asks before they are
    # loaded, as a Celery app that is made by the project's package, is told nothing of them.
    if not settings.classify or not apps.models_ready:
        return []
    # Late: a process that only publishes has no rules to read.
    from .classification.project import project_rules

    return project_rules(settings.classify)[1]
