"""What people are told of Beat: conditions for `hardening.core.alerts`. Workers look, with or without a Beat.

Each look asks the stores a bounded question. A store that does not answer is a condition of its own, for
nobody sends while it is away; the other looks raise then, and open and resolve nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps

from celery import Celery
from django.apps import apps
from django.urls import NoReverseMatch, reverse

from hardening.core.alerts import Condition, Fact, Severity
from hardening.core.apps import NoCeleryApp, celery_app

from .choice import chosen_lock, chosen_register, chosen_ticks
from .choosing import is_reporting
from .lock import LockUnavailable
from .policies import policy_of
from .status import FRESH_SECONDS, LATE_SECONDS
from .ticks import State, TicksUnavailable

__all__ = ["conditions"]

_SKEW_SECONDS = 2.0
_FLAPPING_SECONDS = 600.0
_FLAPPING_TERMS = 4
_REFUSAL_SECONDS = 120.0
_MISSED_SECONDS = 600.0


def conditions() -> tuple[Condition, ...]:
    """All of beat_leader's. Raised within 30 s each."""
    critical, error, warning = Severity.CRITICAL, Severity.ERROR, Severity.WARNING
    return (
        # A takeover takes up to eight seconds, and is no reason to wake anybody.
        Condition(
            name="beat.no_leader",
            severity=critical,
            every_seconds=5.0,
            hold_seconds=10.0,
            gone_seconds=15.0,
            look=_asked(_no_leader),
        ),
        Condition(
            name="beat.leader_not_ticking", severity=critical, every_seconds=5.0, look=_asked(_not_ticking)
        ),
        Condition(name="beat.store_down", severity=critical, every_seconds=5.0, look=_asked(_store_down)),
        Condition(name="beat.schedule_late", severity=error, every_seconds=10.0, look=_asked(_late)),
        Condition(
            name="beat.missed", severity=error, every_seconds=10.0, gone_seconds=120.0, look=_asked(_missed)
        ),
        Condition(
            name="beat.flapping",
            severity=warning,
            every_seconds=10.0,
            gone_seconds=120.0,
            look=_asked(_flapping),
        ),
        Condition(name="beat.clock_skew", severity=warning, every_seconds=10.0, look=_asked(_skew)),
        Condition(name="beat.two_epochs", severity=error, every_seconds=10.0, look=_asked(_two_epochs)),
    )


def _asked(look: Callable[[Celery], Iterable[Fact]]) -> Callable[[], list[Fact]]:
    @wraps(look)
    def asked() -> list[Fact]:
        try:
            app = celery_app()
        except NoCeleryApp:
            return []
        return list(look(app))

    return asked


def _no_leader(app: Celery) -> Iterator[Fact]:
    if not chosen_lock(app).look().holder and _is_ours(app) and _wanted(app):
        yield Fact(
            "beat",
            "no Beat leads: no schedule is sent",
            "Start `celery beat`. Where some run, their logs say why they cannot win the lease; "
            "manage.py beat_leader_status shows who gave a sign of life.",
            _link(),
        )


def _is_ours(app: Celery) -> bool:
    """In report mode `celery beat` is left as it is, unless one of ours was started by name."""
    return not is_reporting() or bool(chosen_register(app).signs())


def _wanted(app: Celery) -> bool:
    """Whether anything is to be sent at all, as far as this process and the stores know."""
    if app.conf.beat_schedule or chosen_ticks(app).cursors():
        return True
    if not apps.is_installed("django_celery_beat"):
        return False
    enabled = apps.get_model("django_celery_beat", "PeriodicTask")._default_manager.filter(enabled=True)
    # django-celery-beat puts this one in whenever its own scheduler is made.
    return bool(enabled.exclude(task="celery.backend_cleanup").exists())


def _not_ticking(app: Celery) -> Iterator[Fact]:
    register = chosen_register(app)
    standing = chosen_lock(app).look()
    if not standing.holder:
        return
    now = register.now()
    sign = next((each for each in register.signs() if each.holder == standing.holder), None)
    since = sign.at if sign is not None else _began(app, standing.epoch)
    if since is not None and now - since > FRESH_SECONDS:
        yield Fact(
            standing.holder,
            f"the leading Beat {standing.holder} does not tick",
            f"Its last sign of life is {now - since:.0f} s old, and it still renews its lease: its tick "
            "hangs. It resigns after BEAT_LEADER['STUCK_SECONDS']; restart it if it does not.",
            _link(),
        )


def _began(app: Celery, epoch: int) -> float | None:
    return next((each.began for each in chosen_register(app).terms(5) if each.epoch == epoch), None)


def _store_down(app: Celery) -> Iterator[Fact]:
    for what, ask in (
        ("leader lock", lambda: chosen_lock(app).look()),
        ("tick store", lambda: chosen_ticks(app).newest_epoch()),
    ):
        try:
            ask()
        except (LockUnavailable, TicksUnavailable) as exc:
            yield Fact(
                what,
                f"the {what} of Beat does not answer: no schedule is sent until it does",
                str(exc),
                _link(),
            )


def _late(app: Celery) -> Iterator[Fact]:
    now = chosen_register(app).now()
    first_of: dict[str, int] = {}
    for tick in chosen_ticks(app).late(before_ms=int(now * 1000) - 1000):
        grace = policy_of(tick.schedule).grace_seconds
        bound = LATE_SECONDS if grace is None else min(grace, LATE_SECONDS)
        if now - tick.due_ms / 1000 > bound:
            first_of.setdefault(tick.schedule, tick.due_ms)
    for schedule, due_ms in first_of.items():
        yield Fact(
            schedule,
            f"the schedule {schedule} is late",
            f"It was due {now - due_ms / 1000:.0f} s ago and is not sent: see the leading Beat's log; the "
            "broker may refuse it.",
            _link(),
        )


def _missed(app: Celery) -> Iterator[Fact]:
    ticks = chosen_ticks(app)
    now = chosen_register(app).now()
    if not ticks.counts(since_ms=int((now - _MISSED_SECONDS) * 1000)).get(State.MISSED):
        return
    latest: dict[str, str] = {}
    for tick in ticks.history(limit=500):
        if tick.state is State.MISSED and tick.due_ms / 1000 > now - _MISSED_SECONDS:
            latest.setdefault(tick.schedule, tick.why)
    for schedule, why in (latest or {"beat": "see manage.py beat_leader_ticks --state missed"}).items():
        yield Fact(
            schedule,
            f"a due time of {schedule} was missed",
            f"It could not be sent in its time: {why}",
            _link(),
        )


def _flapping(app: Celery) -> Iterator[Fact]:
    register = chosen_register(app)
    since = register.now() - _FLAPPING_SECONDS
    lost = [each for each in register.terms(50) if each.began >= since and each.end != "resigned"]
    if len(lost) >= _FLAPPING_TERMS:
        yield Fact(
            "beat",
            f"the leadership changes all the time: {len(lost)} times in {_FLAPPING_SECONDS / 60:.0f} minutes",
            f"Held by {', '.join(sorted({each.holder for each in lost})[:5])}. Their hosts starve, their "
            "way to the lock store breaks, or they cannot read schedules or write ticks: see their logs. A "
            "longer BEAT_LEADER['LEASE_SECONDS'] helps with the first two.",
            _link(),
        )


def _skew(app: Celery) -> Iterator[Fact]:
    register = chosen_register(app)
    now = register.now()
    for sign in register.signs():
        skew = sign.skew_seconds
        if now - sign.at <= FRESH_SECONDS and skew is not None and abs(skew) > _SKEW_SECONDS:
            yield Fact(
                sign.host or sign.holder,
                f"the clock of {sign.host or sign.holder} is {skew:+.1f} s off that of the store",
                "Due times are judged by the store's clock, so they come at its time. Set the clocks right: "
                "expiry times and logs follow the host's.",
                _link(),
            )


def _two_epochs(app: Celery) -> Iterator[Fact]:
    register = chosen_register(app)
    for when, epoch, holder, what in register.refusals(since=register.now() - _REFUSAL_SECONDS):
        yield Fact(
            f"{holder} {epoch}",
            f"the Beat {holder} tried to send after its term",
            f"Its epoch {epoch} is over, and the store refused it ({what}): nothing was doubled. It was "
            f"paused or cut off for longer than its lease, {register.now() - when:.0f} s ago.",
            _link(),
        )


def _link() -> str:
    # Workers may have no URLs of the site, and projects no admin.
    try:
        return reverse("admin:beat_leader_beatterm_changelist")
    except (NoReverseMatch, ImportError, AttributeError):
        return ""
