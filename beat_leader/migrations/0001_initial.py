"""The lease, the tick store, the register and the policies of schedules."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="BeatSign",
            fields=[
                (
                    "holder",
                    models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="Beat"),
                ),
                ("at", models.FloatField(verbose_name="last sign of life")),
                ("told", models.TextField(help_text="A JSON object.", verbose_name="what it told")),
            ],
            options={
                "verbose_name": "sign of life of a Beat",
                "verbose_name_plural": "signs of life of Beats",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="CursorRow",
            fields=[
                (
                    "key",
                    models.CharField(
                        help_text="Of the schedule's name: databases differ in which names are equal.",
                        max_length=32,
                        primary_key=True,
                        serialize=False,
                        verbose_name="digest",
                    ),
                ),
                ("schedule", models.TextField(verbose_name="schedule")),
                (
                    "definition",
                    models.TextField(help_text="A digest of when it is due.", verbose_name="definition"),
                ),
                ("anchor_ms", models.BigIntegerField(verbose_name="counted from")),
                ("decided_ms", models.BigIntegerField(verbose_name="decided up to")),
            ],
            options={
                "verbose_name": "cursor of a schedule",
                "verbose_name_plural": "cursors of schedules",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Refusal",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False, verbose_name="id")),
                ("at", models.FloatField(verbose_name="when")),
                ("epoch", models.BigIntegerField(verbose_name="epoch")),
                ("holder", models.CharField(max_length=255, verbose_name="Beat")),
                ("what", models.TextField(verbose_name="what it tried")),
            ],
            options={
                "verbose_name": "refused write of a Beat",
                "verbose_name_plural": "refused writes of Beats",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="BeatTerm",
            fields=[
                ("epoch", models.BigIntegerField(primary_key=True, serialize=False, verbose_name="epoch")),
                ("holder", models.CharField(max_length=255, verbose_name="Beat")),
                ("began", models.FloatField(verbose_name="began")),
                ("first_sent", models.FloatField(blank=True, null=True, verbose_name="first message sent")),
                ("ended", models.FloatField(blank=True, null=True, verbose_name="ended")),
                ("end", models.CharField(blank=True, max_length=64, verbose_name="how it ended")),
                ("asked_by", models.CharField(blank=True, max_length=255, verbose_name="asked to resign by")),
            ],
            options={
                "verbose_name": "term of a leading Beat",
                "verbose_name_plural": "terms of leading Beats",
                "permissions": (("resign_leader", "Can make the leading Beat resign"),),
                "default_permissions": ("view",),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("epoch__gte", 1)), name="beat_leader_term_epoch"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("ended__isnull", False), ("end", ""), _connector="OR"),
                        name="beat_leader_term_end",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Fence",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False, verbose_name="id")),
                ("epoch", models.BigIntegerField(verbose_name="epoch")),
            ],
            options={
                "verbose_name": "newest epoch of the tick store",
                "verbose_name_plural": "newest epochs of the tick store",
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="beat_leader_fence_one"),
                    models.CheckConstraint(
                        condition=models.Q(("epoch__gte", 1)), name="beat_leader_fence_epoch"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Lease",
            fields=[
                (
                    "name",
                    models.CharField(max_length=64, primary_key=True, serialize=False, verbose_name="name"),
                ),
                ("holder", models.CharField(blank=True, max_length=255, verbose_name="holder")),
                ("epoch", models.BigIntegerField(verbose_name="epoch")),
                (
                    "ends",
                    models.FloatField(
                        help_text="Seconds since 1970 by the database's clock; the lease is over then.",
                        verbose_name="ends",
                    ),
                ),
            ],
            options={
                "verbose_name": "lease of the leading Beat",
                "verbose_name_plural": "leases of the leading Beat",
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("epoch__gte", 1)), name="beat_leader_lease_epoch"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SchedulePolicy",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "schedule",
                    models.CharField(help_text="Its name.", max_length=200, verbose_name="schedule"),
                ),
                ("key", models.CharField(editable=False, max_length=32, unique=True, verbose_name="digest")),
                (
                    "misfire",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("skip", "skip"),
                            ("latest", "send the latest"),
                            ("all", "send all, up to a number"),
                        ],
                        help_text="What becomes of those that no Beat could send in time.",
                        max_length=16,
                        null=True,
                        verbose_name="late due times",
                    ),
                ),
                (
                    "most",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="How many late due times are sent if all are.",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                        verbose_name="at most",
                    ),
                ),
                (
                    "misfire_seconds",
                    models.FloatField(
                        blank=True,
                        help_text="Seconds. A due time that is less late is sent in any case.",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="late after",
                    ),
                ),
                (
                    "grace_seconds",
                    models.FloatField(
                        blank=True,
                        help_text="Seconds. A due time that is later is skipped in any case.",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="grace time",
                    ),
                ),
                (
                    "overlap",
                    models.BooleanField(
                        blank=True,
                        help_text="No: a due time is skipped while the task of the one before has not ended.",
                        null=True,
                        verbose_name="may overlap",
                    ),
                ),
                (
                    "overlap_seconds",
                    models.FloatField(
                        blank=True,
                        help_text="Seconds, at most, if nothing is heard of its task.",
                        null=True,
                        verbose_name="holds the next one back for",
                    ),
                ),
                (
                    "expires",
                    models.BooleanField(
                        blank=True,
                        help_text="At the next due time, unless the schedule says when.",
                        null=True,
                        verbose_name="messages expire",
                    ),
                ),
                (
                    "ping",
                    models.CharField(
                        blank=True,
                        help_text="Of a check compatible with Healthchecks. Who knows it can feign the task's success.",
                        max_length=500,
                        null=True,
                        validators=[django.core.validators.URLValidator(schemes=["http", "https"])],
                        verbose_name="ping URL",
                    ),
                ),
            ],
            options={
                "verbose_name": "policy of a schedule",
                "verbose_name_plural": "policies of schedules",
                "ordering": ("schedule",),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("schedule", ""), _negated=True),
                        name="beat_leader_policy_schedule",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("key", ""), _negated=True), name="beat_leader_policy_key"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("misfire__isnull", True),
                            ("misfire__in", ["skip", "latest", "all"]),
                            _connector="OR",
                        ),
                        name="beat_leader_policy_misfire",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("misfire_seconds__isnull", True), ("misfire_seconds__gte", 0), _connector="OR"
                        ),
                        name="beat_leader_policy_misfire_seconds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("grace_seconds__isnull", True), ("grace_seconds__gte", 0), _connector="OR"
                        ),
                        name="beat_leader_policy_grace_seconds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("most__isnull", True), ("most__gt", 0), _connector="OR"),
                        name="beat_leader_policy_most",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("overlap_seconds__isnull", True), ("overlap_seconds__gt", 0), _connector="OR"
                        ),
                        name="beat_leader_policy_overlap_seconds",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TickRow",
            fields=[
                (
                    "task_id",
                    models.UUIDField(
                        editable=False, primary_key=True, serialize=False, verbose_name="task id"
                    ),
                ),
                (
                    "key",
                    models.CharField(
                        help_text="Of the schedule's name: databases differ in which names are equal.",
                        max_length=32,
                        verbose_name="digest",
                    ),
                ),
                ("schedule", models.TextField(verbose_name="schedule")),
                ("due_ms", models.BigIntegerField(verbose_name="due")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("due", "to be sent"),
                            ("sent", "sent"),
                            ("skipped", "skipped"),
                            ("missed", "missed"),
                        ],
                        max_length=16,
                        verbose_name="state",
                    ),
                ),
                ("why", models.TextField(blank=True, verbose_name="why")),
                ("epoch", models.BigIntegerField(verbose_name="epoch")),
                ("decided_ms", models.BigIntegerField(verbose_name="decided")),
                ("sent_ms", models.BigIntegerField(blank=True, null=True, verbose_name="sent")),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "not known"),
                            ("started", "started"),
                            ("succeeded", "succeeded"),
                            ("dead", "dead letter"),
                            ("cancelled", "cancelled"),
                        ],
                        default="",
                        max_length=16,
                        verbose_name="outcome",
                    ),
                ),
                ("started_ms", models.BigIntegerField(blank=True, null=True, verbose_name="started")),
                ("ended_ms", models.BigIntegerField(blank=True, null=True, verbose_name="ended")),
                ("detail", models.TextField(blank=True, verbose_name="details of the outcome")),
                (
                    "first_ms",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="first due time that it stands for"
                    ),
                ),
                (
                    "count",
                    models.PositiveIntegerField(default=1, verbose_name="due times that it stands for"),
                ),
                (
                    "latest_of",
                    models.CharField(
                        blank=True,
                        editable=False,
                        help_text="The digest again in the row of a schedule's latest due time, else nothing.",
                        max_length=32,
                        null=True,
                        unique=True,
                        verbose_name="latest of",
                    ),
                ),
            ],
            options={
                "verbose_name": "due time",
                "verbose_name_plural": "due times",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["state", "due_ms"], name="beat_leader_tick_state_due"),
                    models.Index(fields=["due_ms", "key"], name="beat_leader_tick_due"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("key", "due_ms"), name="beat_leader_tick_once"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["due", "sent", "skipped", "missed"])),
                        name="beat_leader_tick_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("outcome__in", ["", "started", "succeeded", "dead", "cancelled"])
                        ),
                        name="beat_leader_tick_outcome",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("sent_ms__isnull", False), ("state", "sent")),
                            models.Q(models.Q(("state", "sent"), _negated=True), ("sent_ms__isnull", True)),
                            _connector="OR",
                        ),
                        name="beat_leader_tick_sent",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("first_ms__isnull", True),
                            models.Q(
                                ("count__gte", 1), ("first_ms__lte", models.F("due_ms")), ("state", "skipped")
                            ),
                            _connector="OR",
                        ),
                        name="beat_leader_tick_first",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("latest_of__isnull", True), ("latest_of", models.F("key")), _connector="OR"
                        ),
                        name="beat_leader_tick_latest",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("epoch__gte", 1)), name="beat_leader_tick_epoch"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("count__gte", 1)), name="beat_leader_tick_count"
                    ),
                ],
            },
        ),
    ]
