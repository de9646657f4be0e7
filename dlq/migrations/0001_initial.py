"""The dead letter and its attempts."""

import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="DeadLetter",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                        verbose_name="id",
                    ),
                ),
                (
                    "delivery_key",
                    models.CharField(
                        help_text="Names the work over retries and replays.",
                        max_length=255,
                        verbose_name="delivery key",
                    ),
                ),
                (
                    "replay_number",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="0: the first life of the message; 1: its first replay.",
                        verbose_name="replay number",
                    ),
                ),
                ("occurrence", models.PositiveIntegerField(default=1, verbose_name="occurrence")),
                ("body_digest", models.CharField(max_length=64, verbose_name="body digest")),
                ("task_id", models.CharField(max_length=255, verbose_name="task id")),
                ("root_id", models.CharField(blank=True, max_length=255, verbose_name="root id")),
                ("parent_id", models.CharField(blank=True, max_length=255, verbose_name="parent id")),
                ("task_name", models.CharField(max_length=255, verbose_name="task")),
                ("reason", models.CharField(max_length=64, verbose_name="reason")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "open"),
                            ("replaying", "replaying"),
                            ("replayed", "replayed"),
                            ("discarded", "discarded"),
                        ],
                        default="open",
                        max_length=16,
                        verbose_name="state",
                    ),
                ),
                ("error_class", models.CharField(blank=True, max_length=255, verbose_name="error class")),
                ("error_message", models.TextField(blank=True, verbose_name="error message")),
                ("queue", models.CharField(blank=True, max_length=255, verbose_name="queue")),
                ("exchange", models.CharField(blank=True, max_length=255, verbose_name="exchange")),
                ("routing_key", models.CharField(blank=True, max_length=255, verbose_name="routing key")),
                ("priority", models.IntegerField(blank=True, null=True, verbose_name="priority")),
                ("eta", models.CharField(blank=True, max_length=64, verbose_name="ETA")),
                ("expires", models.CharField(blank=True, max_length=64, verbose_name="expires")),
                ("worker", models.CharField(blank=True, max_length=255, verbose_name="worker")),
                ("redelivered", models.BooleanField(default=False, verbose_name="redelivered")),
                ("canvas", models.JSONField(blank=True, default=dict, verbose_name="canvas")),
                ("argument_names", models.JSONField(blank=True, default=list, verbose_name="argument names")),
                ("release", models.CharField(blank=True, max_length=255, verbose_name="release")),
                ("versions", models.JSONField(blank=True, default=dict, verbose_name="versions")),
                (
                    "captures",
                    models.PositiveIntegerField(
                        default=1,
                        help_text="How often this same failure was handed in while the letter was live.",
                        verbose_name="captures",
                    ),
                ),
                (
                    "first_seen_at",
                    models.DateTimeField(
                        help_text="Start of the first known attempt.", verbose_name="first seen"
                    ),
                ),
                ("failed_at", models.DateTimeField(verbose_name="failed")),
                ("stored_at", models.DateTimeField(verbose_name="stored")),
                ("last_captured_at", models.DateTimeField(verbose_name="last captured")),
                ("sealed", models.BinaryField(verbose_name="payload")),
                ("sealed_with", models.CharField(max_length=16, verbose_name="payload stored as")),
                (
                    "replay_task_id",
                    models.CharField(
                        help_text="Known beforehand, so that sending a replay twice is the same task.",
                        max_length=255,
                        verbose_name="task id of its replay",
                    ),
                ),
                (
                    "claim_token",
                    models.UUIDField(blank=True, editable=False, null=True, verbose_name="claim token"),
                ),
                ("claimed_at", models.DateTimeField(blank=True, null=True, verbose_name="claimed")),
                ("claimed_by", models.CharField(blank=True, max_length=255, verbose_name="claimed by")),
                ("replayed_at", models.DateTimeField(blank=True, null=True, verbose_name="replayed")),
                ("replay_error", models.TextField(blank=True, verbose_name="last replay error")),
                ("closed_at", models.DateTimeField(blank=True, null=True, verbose_name="closed")),
                ("closed_by", models.CharField(blank=True, max_length=255, verbose_name="closed by")),
                ("discard_reason", models.TextField(blank=True, verbose_name="reason for discarding")),
                (
                    "replay_of",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="replays",
                        to="dlq.deadletter",
                        verbose_name="replay of",
                    ),
                ),
            ],
            options={
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
                "ordering": ("-failed_at", "-id"),
                "permissions": (
                    ("replay_deadletter", "Can replay dead letter"),
                    ("discard_deadletter", "Can discard dead letter"),
                    ("view_payload", "Can view the payload of dead letter"),
                ),
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveIntegerField(verbose_name="number")),
                ("error_class", models.CharField(blank=True, max_length=255, verbose_name="error class")),
                ("message", models.TextField(blank=True, verbose_name="message")),
                ("traceback", models.TextField(blank=True, verbose_name="traceback")),
                ("worker", models.CharField(blank=True, max_length=255, verbose_name="worker")),
                ("started_at", models.DateTimeField(blank=True, null=True, verbose_name="started")),
                ("failed_at", models.DateTimeField(blank=True, null=True, verbose_name="failed")),
                (
                    "letter",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="attempts",
                        to="dlq.deadletter",
                        verbose_name="dead letter",
                    ),
                ),
            ],
            options={
                "verbose_name": "attempt",
                "verbose_name_plural": "attempts",
                "ordering": ("-number",),
                "default_permissions": (),
            },
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["failed_at"], name="dlq_failed"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["state", "failed_at"], name="dlq_state_failed"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["task_name", "failed_at"], name="dlq_task_failed"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["queue", "failed_at"], name="dlq_queue_failed"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["error_class", "failed_at"], name="dlq_error_failed"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["reason", "failed_at"], name="dlq_reason_failed"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["body_digest"], name="dlq_digest"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["task_id"], name="dlq_task_id"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["root_id"], name="dlq_root_id"),
        ),
        migrations.AddConstraint(
            model_name="deadletter",
            constraint=models.UniqueConstraint(
                fields=("delivery_key", "replay_number", "body_digest", "occurrence"), name="dlq_letter_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="deadletter",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["open", "replaying", "replayed", "discarded"])),
                name="dlq_letter_state",
            ),
        ),
        migrations.AddConstraint(
            model_name="deadletter",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("closed_at__isnull", True), ("state__in", ["open", "replaying"])),
                    models.Q(("closed_at__isnull", False), ("state__in", ["replayed", "discarded"])),
                    _connector="OR",
                ),
                name="dlq_letter_closed_at",
            ),
        ),
        migrations.AddConstraint(
            model_name="deadletter",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "replaying"), _negated=True),
                    models.Q(("claim_token__isnull", False), ("claimed_at__isnull", False)),
                    _connector="OR",
                ),
                name="dlq_letter_claim",
            ),
        ),
        migrations.AddConstraint(
            model_name="deadletter",
            constraint=models.CheckConstraint(
                condition=models.Q(("captures__gte", 1), ("occurrence__gte", 1)), name="dlq_letter_counts"
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.UniqueConstraint(fields=("letter", "number"), name="dlq_attempt_once"),
        ),
    ]
