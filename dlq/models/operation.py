"""Operations, their items and their audit trail; and the pace that all who send share.

An item and its letter change in one transaction, and the item says before any publish which task id and which
replay number its message has: whoever goes on after a crash sends the same message.
"""

from __future__ import annotations

import uuid
from typing import ClassVar, Self

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..operations.states import ItemState, Kind, OperationState
from .letter import NAME_LENGTH, DeadLetter
from .places import HereManager

__all__ = ["Operation", "OperationEvent", "OperationItem", "OperationMessage", "SendingPace"]

_KIND_LABELS = [(Kind.REPLAY.value, _("replay")), (Kind.COPY.value, _("send a copy"))]
_STATE_LABELS = [
    (OperationState.PLANNED.value, _("planned")),
    (OperationState.AWAITING_APPROVAL.value, _("awaiting approval")),
    (OperationState.RUNNING.value, _("running")),
    (OperationState.PAUSED.value, _("paused")),
    (OperationState.SETTLING.value, _("awaiting outcomes")),
    (OperationState.CANCELLED.value, _("cancelled")),
    (OperationState.CLOSED.value, _("closed")),
]
_ITEM_LABELS = [
    (ItemState.WAITING.value, _("waiting")),
    (ItemState.STAGED.value, _("staged")),
    (ItemState.SENT.value, _("running")),
    (ItemState.SUCCEEDED.value, _("succeeded")),
    (ItemState.CAME_BACK.value, _("came back")),
    (ItemState.LOST.value, _("lost")),
    (ItemState.NOT_SENT.value, _("not sent")),
]


class Operation(models.Model):
    """A replay, or the sending of copies, of a set of letters that was frozen when it was made."""

    id = models.UUIDField(_("id"), primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(_("kind"), max_length=16, choices=_KIND_LABELS, default=Kind.REPLAY.value)
    state = models.CharField(
        _("state"), max_length=16, choices=_STATE_LABELS, default=OperationState.PLANNED.value
    )
    source = models.JSONField(
        _("made from"), default=dict, help_text=_("The filter, the group or the selection, as it was given.")
    )
    queue = models.CharField(
        _("target queue"), max_length=NAME_LENGTH, blank=True, help_text=_("Empty: where each came from.")
    )
    pace = models.JSONField(_("pace"), default=dict)
    pause_above_percent = models.PositiveSmallIntegerField(
        _("pause above"), default=10, help_text=_("Percent of what was sent that failed again. 100: never.")
    )
    pause_on_same_cause = models.BooleanField(_("pause when the same cause returns"), default=True)
    total = models.PositiveIntegerField(_("letters"), default=0)

    why = models.TextField(_("reason given"), blank=True)
    created_by = models.CharField(_("made by"), max_length=NAME_LENGTH)
    created_at = models.DateTimeField(_("made"))
    approved_by = models.CharField(_("approved by"), max_length=NAME_LENGTH, blank=True)
    approved_at = models.DateTimeField(_("approved"), null=True, blank=True)
    started_at = models.DateTimeField(_("started"), null=True, blank=True)
    sent_all_at = models.DateTimeField(_("all sent"), null=True, blank=True)
    closed_at = models.DateTimeField(_("closed"), null=True, blank=True)
    paused_because = models.CharField(_("paused because"), max_length=16, blank=True)
    pause_detail = models.TextField(_("details of the pause"), blank=True)

    step = models.PositiveIntegerField(_("step of the ramp"), default=0)
    step_sent = models.PositiveIntegerField(
        _("sent in this step"), default=0, help_text=_("Staged items count.")
    )
    judged_from = models.DateTimeField(
        _("judged from"), null=True, blank=True, help_text=_("Outcomes before a resume pause it no more.")
    )
    runner = models.UUIDField(_("runner"), null=True, blank=True, editable=False)
    runner_until = models.DateTimeField(_("runner's lease"), null=True, blank=True, editable=False)

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("operation")
        verbose_name_plural = _("operations")
        ordering = ("-created_at", "-id")
        permissions = (("operate_operation", _("Can run, pause and cancel operations")),)
        constraints = (
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in OperationState]), name="dlq_operation_state"
            ),
            models.CheckConstraint(
                condition=~Q(state=OperationState.CLOSED.value) | Q(closed_at__isnull=False),
                name="dlq_operation_closed_at",
            ),
        )
        indexes = (
            models.Index(fields=("created_at",), name="dlq_operation_created"),
            models.Index(fields=("state", "created_at"), name="dlq_operation_state_created"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class OperationItem(models.Model):
    """One letter of an operation, and what became of it."""

    # Others of its indexes begin with it, and each index is written three times for an item that is sent.
    operation = models.ForeignKey(Operation, on_delete=models.CASCADE, db_index=False, related_name="items")
    # No database constraint: what became of a letter is known also when it was purged.
    letter = models.ForeignKey(
        DeadLetter, on_delete=models.DO_NOTHING, db_constraint=False, related_name="items"
    )
    position = models.PositiveIntegerField(_("position"))
    state = models.CharField(_("state"), max_length=16, choices=_ITEM_LABELS, default=ItemState.WAITING.value)
    verdict = models.CharField(_("verdict"), max_length=32, blank=True)
    error = models.TextField(_("error"), blank=True)
    replay_number = models.PositiveIntegerField(_("replay number"), default=0)
    task_id = models.CharField(_("task id"), max_length=NAME_LENGTH, blank=True)
    delivery_key = models.CharField(_("delivery key"), max_length=NAME_LENGTH, blank=True)
    fingerprint = models.CharField(_("fingerprint"), max_length=64, blank=True)
    # An edited message, stored as payloads of letters are; empty: as it was kept.
    sealed = models.BinaryField(_("edited message"), null=True, blank=True)
    sealed_with = models.CharField(_("edited message stored as"), max_length=16, blank=True)
    staged_at = models.DateTimeField(_("staged"), null=True, blank=True)
    sent_at = models.DateTimeField(_("sent"), null=True, blank=True)
    settled_at = models.DateTimeField(_("settled"), null=True, blank=True)
    new_letter = models.ForeignKey(
        DeadLetter,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        db_constraint=False,
        related_name="came_back_from",
    )
    same_cause = models.BooleanField(_("same cause"), null=True, blank=True)

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("item of an operation")
        verbose_name_plural = _("items of operations")
        default_permissions = ()
        constraints = (
            models.UniqueConstraint(fields=("operation", "letter"), name="dlq_item_once"),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in ItemState]), name="dlq_item_state"
            ),
        )
        indexes = (
            models.Index(fields=("operation", "state", "position"), name="dlq_item_turn"),
            models.Index(fields=("operation", "settled_at"), name="dlq_item_settled"),
            models.Index(fields=("operation", "position"), name="dlq_item_position"),
        )

    def __str__(self) -> str:
        return f"{self.operation_id} {self.position}"


class OperationMessage(models.Model):
    """What an operation owes beside its letters, stored as payloads of letters are: the members of a chord
    that had succeeded, and at position 0 the chord itself. A row is deleted when it was sent."""

    operation = models.ForeignKey(
        Operation, on_delete=models.CASCADE, db_index=False, related_name="messages"
    )
    position = models.PositiveIntegerField(_("position"))
    task_id = models.CharField(_("task id"), max_length=NAME_LENGTH)
    sealed = models.BinaryField(_("message"))
    sealed_with = models.CharField(_("message stored as"), max_length=16)

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("message of an operation")
        verbose_name_plural = _("messages of operations")
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("operation", "position"), name="dlq_message_once"),)

    def __str__(self) -> str:
        return f"{self.operation_id} {self.position}"


class OperationEvent(models.Model):
    """What was done to an operation, by whom and when. Rows are added, never changed."""

    operation = models.ForeignKey(Operation, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(_("at"))
    by = models.CharField(_("by"), max_length=NAME_LENGTH)
    what = models.CharField(_("what"), max_length=32)
    detail = models.JSONField(_("detail"), default=dict, blank=True)

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        verbose_name = _("event of an operation")
        verbose_name_plural = _("events of operations")
        default_permissions = ()
        ordering = ("at", "id")

    def __str__(self) -> str:
        return f"{self.what} {self.operation_id}"


class SendingPace(models.Model):
    """What all who send to one queue share: when the next message may go. One row a queue, changed by
    compare-and-set."""

    queue = models.CharField(max_length=NAME_LENGTH, primary_key=True)
    next_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=0)

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.queue
