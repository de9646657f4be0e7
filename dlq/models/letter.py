"""The dead letter and its attempts as rows: every invariant a constraint, every change a compare-and-set."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import ClassVar, Self, cast

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from hardening.core.letter import DeadLetter as LetterRecord
from hardening.core.letter import load_letter

from ..conf import dlq_settings
from ..errors import CannotUnseal
from ..sealing import unseal
from ..states import CLOSED, LIVE, State, sources_of
from ..verdicts import judgement
from .places import HereManager

__all__ = [
    "FINGERPRINT_LENGTH",
    "NAME_LENGTH",
    "VERDICT_LENGTH",
    "Attempt",
    "DeadLetter",
    "DeadLetterQuerySet",
]

FINGERPRINT_LENGTH = 64
NAME_LENGTH = 255
VERDICT_LENGTH = 16
_SHORT = 64
_STATE_LABELS = [
    (State.OPEN.value, _("open")),
    (State.REPLAYING.value, _("replaying")),
    (State.REPLAYED.value, _("replayed")),
    (State.DISCARDED.value, _("discarded")),
]


class DeadLetterQuerySet(models.QuerySet["DeadLetter"]):
    """Letters by state, and the transitions. Each transition returns how many rows it changed."""

    def open(self) -> Self:
        """Waiting for a decision."""
        return self.filter(state=State.OPEN)

    def replaying(self) -> Self:
        """Claimed by a replay that has not ended."""
        return self.filter(state=State.REPLAYING)

    def replayed(self) -> Self:
        """Sent again."""
        return self.filter(state=State.REPLAYED)

    def discarded(self) -> Self:
        """Given up on purpose."""
        return self.filter(state=State.DISCARDED)

    def live(self) -> Self:
        """Open or replaying: the same failure seen again belongs to this letter."""
        return self.filter(state__in=LIVE)

    def closed(self) -> Self:
        """Replayed or discarded: nobody works on it."""
        return self.filter(state__in=CLOSED)

    def replayable(self, *, stale_before: datetime) -> Self:
        """Open, or claimed by a replay that must have died."""
        return self.filter(Q(state=State.OPEN) | Q(state=State.REPLAYING, claimed_at__lt=stale_before))

    def claimed_with(self, token: uuid.UUID) -> Self:
        """Those that the holder of this token changed last."""
        return self.filter(claim_token=token)

    def capture_again(self, *, now: datetime) -> int:
        """Count one more capture of a letter that is still live."""
        return self.live().update(captures=F("captures") + 1, last_captured_at=now)

    def claim(self, *, by: str, token: uuid.UUID, now: datetime, stale_before: datetime) -> int:
        """open -> replaying, or take over a claim made before `stale_before`."""
        return self.replayable(stale_before=stale_before).update(
            state=State.REPLAYING, claimed_at=now, claimed_by=by, claim_token=token, replay_error=""
        )

    def renew_claim(self, token: uuid.UUID, *, now: datetime) -> int:
        """Keep what this token still holds from going stale."""
        return self.replaying().claimed_with(token).update(claimed_at=now)

    def finish_replay(self, token: uuid.UUID, *, now: datetime) -> int:
        """replaying -> replayed, for the holder of this token only."""
        return (
            self.replaying()
            .claimed_with(token)
            .update(state=State.REPLAYED, replayed_at=now, closed_at=now, closed_by=F("claimed_by"))
        )

    def give_back(self, token: uuid.UUID, *, error: str) -> int:
        """replaying -> open, for the holder of this token only."""
        return (
            self.replaying().claimed_with(token).update(state=State.OPEN, claimed_at=None, replay_error=error)
        )

    def prove_replayed(self, *, now: datetime) -> int:
        """Close what must have been sent, because the failure of its replay arrived."""
        return self.filter(state__in=sources_of(State.REPLAYED)).update(
            state=State.REPLAYED, replayed_at=now, closed_at=now, closed_by=F("claimed_by")
        )

    def discard(self, *, by: str, reason: str, token: uuid.UUID, now: datetime) -> int:
        """open -> discarded."""
        return self.filter(state__in=sources_of(State.DISCARDED)).update(
            state=State.DISCARDED, closed_at=now, closed_by=by, discard_reason=reason, claim_token=token
        )

    def restore(self, *, token: uuid.UUID) -> int:
        """discarded -> open. Raises IntegrityError where another letter of the same work is live."""
        return self.discarded().update(
            state=State.OPEN, closed_at=None, closed_by="", discard_reason="", claim_token=token
        )


_LetterManager = models.Manager.from_queryset(DeadLetterQuerySet)


class DeadLetterManager(_LetterManager["DeadLetter"]):
    """Reads and writes where DLQ["DATABASE"] says, also without a router."""

    def get_queryset(self) -> DeadLetterQuerySet:
        queryset = cast("DeadLetterQuerySet", super().get_queryset())
        alias = dlq_settings().database
        return queryset.using(alias) if alias and not self._db else queryset


class DeadLetter(models.Model):
    """One message that failed for good.

    `occurrence` counts the letters of one delivery and body: a delivery that fails again after its
    letter was closed gets a new letter. At most one of them is live: `live_digest` is unique, whoever
    captures, restores, imports or purges.
    """

    id = models.UUIDField(_("id"), primary_key=True, default=uuid.uuid4, editable=False)
    delivery_key = models.CharField(
        _("delivery key"), max_length=NAME_LENGTH, help_text=_("Names the work over retries and replays.")
    )
    replay_number = models.PositiveIntegerField(
        _("replay number"), default=0, help_text=_("0: the first life of the message; 1: its first replay.")
    )
    occurrence = models.PositiveIntegerField(_("occurrence"), default=1)
    body_digest = models.CharField(_("body digest"), max_length=_SHORT)
    # Kept by the database, so that no process of any version can leave it out.
    live_digest = models.GeneratedField(
        verbose_name=_("body digest while live"),
        expression=models.Case(
            models.When(state__in=[state.value for state in LIVE], then=F("body_digest")), default=None
        ),
        output_field=models.CharField(max_length=_SHORT, null=True),
        db_persist=True,
        null=True,
    )
    task_id = models.CharField(_("task id"), max_length=NAME_LENGTH)
    root_id = models.CharField(_("root id"), max_length=NAME_LENGTH, blank=True)
    parent_id = models.CharField(_("parent id"), max_length=NAME_LENGTH, blank=True)
    task_name = models.CharField(_("task"), max_length=NAME_LENGTH)
    # No choices: a new code must not ask every project for a migration.
    reason = models.CharField(_("reason"), max_length=_SHORT)
    state = models.CharField(_("state"), max_length=16, choices=_STATE_LABELS, default=State.OPEN.value)

    error_class = models.CharField(_("error class"), max_length=NAME_LENGTH, blank=True)
    error_message = models.TextField(_("error message"), blank=True)
    # Of the last attempt. Defaults of the database: processes of the version before still write rows.
    verdict = models.CharField(_("verdict"), max_length=VERDICT_LENGTH, blank=True, default="", db_default="")
    rule = models.CharField(_("rule"), max_length=NAME_LENGTH, blank=True, default="", db_default="")
    queue = models.CharField(_("queue"), max_length=NAME_LENGTH, blank=True)
    exchange = models.CharField(_("exchange"), max_length=NAME_LENGTH, blank=True)
    routing_key = models.CharField(_("routing key"), max_length=NAME_LENGTH, blank=True)
    priority = models.IntegerField(_("priority"), null=True, blank=True)
    eta = models.CharField(_("ETA"), max_length=_SHORT, blank=True)
    expires = models.CharField(_("expires"), max_length=_SHORT, blank=True)
    worker = models.CharField(_("worker"), max_length=NAME_LENGTH, blank=True)
    redelivered = models.BooleanField(_("redelivered"), default=False)
    canvas = models.JSONField(_("canvas"), default=dict, blank=True)
    argument_names = models.JSONField(_("argument names"), default=list, blank=True)
    release = models.CharField(_("release"), max_length=NAME_LENGTH, blank=True)
    imported_from = models.CharField(
        _("imported from"), max_length=NAME_LENGTH, blank=True, default="", db_default=""
    )
    versions = models.JSONField(_("versions"), default=dict, blank=True)

    fingerprint = models.CharField(
        _("fingerprint"),
        max_length=FINGERPRINT_LENGTH,
        blank=True,
        default="",
        db_default="",
        help_text=_("The same for letters of one cause. Empty: not computed yet."),
    )
    # Set when the letter was counted in its group; no constraint: a letter never waits for its group.
    group = models.ForeignKey(
        "LetterGroup",
        verbose_name=_("group"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        db_constraint=False,
        db_index=False,
        related_name="members",
    )

    captures = models.PositiveIntegerField(
        _("captures"),
        default=1,
        help_text=_("How often this same failure was handed in while the letter was live."),
    )
    first_seen_at = models.DateTimeField(_("first seen"), help_text=_("Start of the first known attempt."))
    failed_at = models.DateTimeField(_("failed"))
    stored_at = models.DateTimeField(_("stored"))
    last_captured_at = models.DateTimeField(_("last captured"))

    sealed = models.BinaryField(_("payload"))
    sealed_with = models.CharField(_("payload stored as"), max_length=16)

    # No database constraint: a letter is kept even when the one that it replays is gone.
    replay_of = models.ForeignKey(
        "self",
        verbose_name=_("replay of"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        db_constraint=False,
        related_name="replays",
    )
    replay_task_id = models.CharField(
        _("task id of its replay"),
        max_length=NAME_LENGTH,
        help_text=_("Known beforehand, so that sending a replay twice is the same task."),
    )
    claim_token = models.UUIDField(_("claim token"), null=True, blank=True, editable=False)
    claimed_at = models.DateTimeField(_("claimed"), null=True, blank=True)
    claimed_by = models.CharField(_("claimed by"), max_length=NAME_LENGTH, blank=True)
    replayed_at = models.DateTimeField(_("replayed"), null=True, blank=True)
    replay_error = models.TextField(_("last replay error"), blank=True)
    closed_at = models.DateTimeField(_("closed"), null=True, blank=True)
    closed_by = models.CharField(_("closed by"), max_length=NAME_LENGTH, blank=True)
    discard_reason = models.TextField(_("reason for discarding"), blank=True)

    objects = DeadLetterManager()

    class Meta:
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        ordering = ("-failed_at", "-id")
        permissions = (
            ("replay_deadletter", _("Can replay dead letter")),
            ("discard_deadletter", _("Can discard dead letter")),
            ("view_payload", _("Can view the payload of dead letter")),
            ("edit_deadletter", _("Can edit and replay dead letter")),
            ("purge_deadletter", _("Can purge archived dead letters")),
            ("triage_deadletter", _("Can acknowledge, snooze and resolve groups")),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("delivery_key", "replay_number", "body_digest", "occurrence"), name="dlq_letter_once"
            ),
            models.UniqueConstraint(fields=("live_digest",), name="dlq_letter_live_once"),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in State]), name="dlq_letter_state"
            ),
            models.CheckConstraint(
                condition=(
                    Q(state__in=[state.value for state in LIVE], closed_at__isnull=True)
                    | Q(state__in=[state.value for state in CLOSED], closed_at__isnull=False)
                ),
                name="dlq_letter_closed_at",
            ),
            models.CheckConstraint(
                condition=~Q(state=State.REPLAYING.value)
                | Q(claimed_at__isnull=False, claim_token__isnull=False),
                name="dlq_letter_claim",
            ),
            models.CheckConstraint(condition=Q(occurrence__gte=1, captures__gte=1), name="dlq_letter_counts"),
        )
        indexes = (
            models.Index(fields=("failed_at",), name="dlq_failed"),
            models.Index(fields=("state", "failed_at"), name="dlq_state_failed"),
            models.Index(fields=("task_name", "failed_at"), name="dlq_task_failed"),
            models.Index(fields=("queue", "failed_at"), name="dlq_queue_failed"),
            models.Index(fields=("error_class", "failed_at"), name="dlq_error_failed"),
            models.Index(fields=("reason", "failed_at"), name="dlq_reason_failed"),
            models.Index(fields=("verdict", "failed_at"), name="dlq_verdict_failed"),
            # All that the page of unclassified errors groups: InnoDB takes far too long to look up each row.
            models.Index(
                fields=("verdict", "state", "error_class", "task_name", "first_seen_at", "failed_at"),
                name="dlq_unclassified",
            ),
            models.Index(fields=("group", "failed_at"), name="dlq_group_failed"),
            models.Index(fields=("group", "state", "failed_at"), name="dlq_group_state_failed"),
            models.Index(fields=("state", "closed_at"), name="dlq_state_closed"),
            models.Index(fields=("stored_at",), name="dlq_stored"),
            models.Index(fields=("body_digest",), name="dlq_digest"),
            models.Index(fields=("task_id",), name="dlq_task_id"),
            models.Index(fields=("root_id",), name="dlq_root_id"),
        )

    def __str__(self) -> str:
        return f"{self.task_name} {self.task_id}"

    def record(self) -> LetterRecord:
        """The letter as it was captured, without its attempts. Raises CannotUnseal."""
        plain = unseal(
            bytes(self.sealed), self.sealed_with, dlq_settings().encryption_keys, letter_id=self.pk
        )
        try:
            return load_letter(plain)
        except ValueError as exc:
            raise CannotUnseal(f"letter {self.pk}: its stored payload is damaged ({exc})") from exc


class Attempt(models.Model):
    """One run of the task that did not succeed."""

    letter = models.ForeignKey(
        DeadLetter, verbose_name=_("dead letter"), on_delete=models.CASCADE, related_name="attempts"
    )
    number = models.PositiveIntegerField(_("number"))
    error_class = models.CharField(_("error class"), max_length=NAME_LENGTH, blank=True)
    message = models.TextField(_("message"), blank=True)
    traceback = models.TextField(_("traceback"), blank=True)
    verdict = models.CharField(_("verdict"), max_length=VERDICT_LENGTH, blank=True, default="", db_default="")
    rule = models.CharField(_("rule"), max_length=NAME_LENGTH, blank=True, default="", db_default="")
    worker = models.CharField(_("worker"), max_length=NAME_LENGTH, blank=True)
    started_at = models.DateTimeField(_("started"), null=True, blank=True)
    failed_at = models.DateTimeField(_("failed"), null=True, blank=True)

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        ordering = ("-number",)
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("letter", "number"), name="dlq_attempt_once"),)

    def __str__(self) -> str:
        return f"{self.number}: {self.error_class}"

    @property
    def judgement(self) -> str:
        """What was said of its error, and by which rule; empty where nobody judged."""
        return judgement(self.verdict, self.rule)

    @property
    def ran_for_seconds(self) -> float | None:
        """How long it ran, where both ends are known."""
        if self.started_at is None or self.failed_at is None:
            return None
        return max(0.0, (self.failed_at - self.started_at).total_seconds())
