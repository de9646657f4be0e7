"""Fingerprints and groups of letters; operations, their items and their audit trail."""

import uuid

import django.db.models.deletion
from django.db import migrations, models


class AddGeneratedField(migrations.AddField):
    """SQLite adds no stored column to a table that holds rows: it gets a new table."""

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor != "sqlite":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            before = from_state.apps.get_model(app_label, self.model_name)
            schema_editor._remake_table(before, create_field=model._meta.get_field(self.name))


class Migration(migrations.Migration):
    dependencies = [
        ("dlq", "0002_verdicts"),
    ]

    operations = [
        migrations.CreateModel(
            name="Operation",
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
                    "kind",
                    models.CharField(
                        choices=[("replay", "replay"), ("copy", "send a copy")],
                        default="replay",
                        max_length=16,
                        verbose_name="kind",
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("planned", "planned"),
                            ("awaiting", "awaiting approval"),
                            ("running", "running"),
                            ("paused", "paused"),
                            ("settling", "awaiting outcomes"),
                            ("cancelled", "cancelled"),
                            ("closed", "closed"),
                        ],
                        default="planned",
                        max_length=16,
                        verbose_name="state",
                    ),
                ),
                (
                    "source",
                    models.JSONField(
                        default=dict,
                        help_text="The filter, the group or the selection, as it was given.",
                        verbose_name="made from",
                    ),
                ),
                (
                    "queue",
                    models.CharField(
                        blank=True,
                        help_text="Empty: where each came from.",
                        max_length=255,
                        verbose_name="target queue",
                    ),
                ),
                ("pace", models.JSONField(default=dict, verbose_name="pace")),
                (
                    "pause_above_percent",
                    models.PositiveSmallIntegerField(
                        default=10,
                        help_text="Percent of what was sent that failed again. 100: never.",
                        verbose_name="pause above",
                    ),
                ),
                (
                    "pause_on_same_cause",
                    models.BooleanField(default=True, verbose_name="pause when the same cause returns"),
                ),
                ("total", models.PositiveIntegerField(default=0, verbose_name="letters")),
                ("why", models.TextField(blank=True, verbose_name="reason given")),
                ("created_by", models.CharField(max_length=255, verbose_name="made by")),
                ("created_at", models.DateTimeField(verbose_name="made")),
                ("approved_by", models.CharField(blank=True, max_length=255, verbose_name="approved by")),
                ("approved_at", models.DateTimeField(blank=True, null=True, verbose_name="approved")),
                ("started_at", models.DateTimeField(blank=True, null=True, verbose_name="started")),
                ("sent_all_at", models.DateTimeField(blank=True, null=True, verbose_name="all sent")),
                ("closed_at", models.DateTimeField(blank=True, null=True, verbose_name="closed")),
                (
                    "paused_because",
                    models.CharField(blank=True, max_length=16, verbose_name="paused because"),
                ),
                ("pause_detail", models.TextField(blank=True, verbose_name="details of the pause")),
                ("step", models.PositiveIntegerField(default=0, verbose_name="step of the ramp")),
                (
                    "step_sent",
                    models.PositiveIntegerField(
                        default=0, help_text="Staged items count.", verbose_name="sent in this step"
                    ),
                ),
                (
                    "judged_from",
                    models.DateTimeField(
                        blank=True,
                        help_text="Outcomes before a resume pause it no more.",
                        null=True,
                        verbose_name="judged from",
                    ),
                ),
                ("runner", models.UUIDField(blank=True, editable=False, null=True, verbose_name="runner")),
                (
                    "runner_until",
                    models.DateTimeField(
                        blank=True, editable=False, null=True, verbose_name="runner's lease"
                    ),
                ),
            ],
            options={
                "verbose_name": "operation",
                "verbose_name_plural": "operations",
                "ordering": ("-created_at", "-id"),
                "permissions": (("operate_operation", "Can run, pause and cancel operations"),),
            },
        ),
        migrations.CreateModel(
            name="OperationEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField(verbose_name="at")),
                ("by", models.CharField(max_length=255, verbose_name="by")),
                ("what", models.CharField(max_length=32, verbose_name="what")),
                ("detail", models.JSONField(blank=True, default=dict, verbose_name="detail")),
            ],
            options={
                "verbose_name": "event of an operation",
                "verbose_name_plural": "events of operations",
                "ordering": ("at", "id"),
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="OperationItem",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("position", models.PositiveIntegerField(verbose_name="position")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "waiting"),
                            ("staged", "staged"),
                            ("sent", "running"),
                            ("succeeded", "succeeded"),
                            ("came_back", "came back"),
                            ("lost", "lost"),
                            ("not_sent", "not sent"),
                        ],
                        default="waiting",
                        max_length=16,
                        verbose_name="state",
                    ),
                ),
                ("verdict", models.CharField(blank=True, max_length=32, verbose_name="verdict")),
                ("error", models.TextField(blank=True, verbose_name="error")),
                ("replay_number", models.PositiveIntegerField(default=0, verbose_name="replay number")),
                ("task_id", models.CharField(blank=True, max_length=255, verbose_name="task id")),
                ("delivery_key", models.CharField(blank=True, max_length=255, verbose_name="delivery key")),
                ("fingerprint", models.CharField(blank=True, max_length=64, verbose_name="fingerprint")),
                ("sealed", models.BinaryField(blank=True, null=True, verbose_name="edited message")),
                (
                    "sealed_with",
                    models.CharField(blank=True, max_length=16, verbose_name="edited message stored as"),
                ),
                ("staged_at", models.DateTimeField(blank=True, null=True, verbose_name="staged")),
                ("sent_at", models.DateTimeField(blank=True, null=True, verbose_name="sent")),
                ("settled_at", models.DateTimeField(blank=True, null=True, verbose_name="settled")),
                ("same_cause", models.BooleanField(blank=True, null=True, verbose_name="same cause")),
            ],
            options={
                "verbose_name": "item of an operation",
                "verbose_name_plural": "items of operations",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="SeenRelease",
            fields=[
                ("name", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("settled_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="SendingPace",
            fields=[
                ("queue", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("next_at", models.DateTimeField()),
                ("version", models.PositiveBigIntegerField(default=0)),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Turn",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.AlterModelOptions(
            name="deadletter",
            options={
                "ordering": ("-failed_at", "-id"),
                "permissions": (
                    ("replay_deadletter", "Can replay dead letter"),
                    ("discard_deadletter", "Can discard dead letter"),
                    ("view_payload", "Can view the payload of dead letter"),
                    ("edit_deadletter", "Can edit and replay dead letter"),
                    ("purge_deadletter", "Can purge archived dead letters"),
                    ("triage_deadletter", "Can acknowledge, snooze and resolve groups"),
                ),
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
            },
        ),
        migrations.AddField(
            model_name="deadletter",
            name="fingerprint",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="The same for letters of one cause. Empty: not computed yet.",
                max_length=64,
                verbose_name="fingerprint",
            ),
        ),
        migrations.AddField(
            model_name="deadletter",
            name="imported_from",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=255, verbose_name="imported from"
            ),
        ),
        migrations.CreateModel(
            name="LetterGroup",
            fields=[
                (
                    "fingerprint",
                    models.CharField(
                        max_length=64, primary_key=True, serialize=False, verbose_name="fingerprint"
                    ),
                ),
                ("task_name", models.CharField(max_length=255, verbose_name="task")),
                ("error_class", models.CharField(blank=True, max_length=255, verbose_name="error class")),
                ("reason", models.CharField(max_length=64, verbose_name="reason")),
                (
                    "title",
                    models.CharField(
                        blank=True,
                        help_text="The message without what varies.",
                        max_length=255,
                        verbose_name="title",
                    ),
                ),
                (
                    "place",
                    models.CharField(
                        blank=True,
                        help_text="The innermost frame of the project.",
                        max_length=255,
                        verbose_name="place",
                    ),
                ),
                ("letters", models.PositiveBigIntegerField(default=0, verbose_name="letters")),
                ("first_seen_at", models.DateTimeField(verbose_name="first seen")),
                ("last_seen_at", models.DateTimeField(verbose_name="last seen")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "open"),
                            ("acknowledged", "acknowledged"),
                            ("snoozed", "snoozed"),
                            ("resolved", "resolved"),
                            ("regressed", "regressed"),
                        ],
                        default="open",
                        max_length=16,
                        verbose_name="state",
                    ),
                ),
                ("state_since", models.DateTimeField(verbose_name="state since")),
                ("state_by", models.CharField(blank=True, max_length=255, verbose_name="state set by")),
                ("owner", models.CharField(blank=True, max_length=255, verbose_name="owner")),
                ("note", models.TextField(blank=True, verbose_name="note")),
                ("snoozed_until", models.DateTimeField(blank=True, null=True, verbose_name="snoozed until")),
                (
                    "snoozed_release",
                    models.CharField(blank=True, max_length=255, verbose_name="snoozed until release"),
                ),
                (
                    "resolved_release",
                    models.CharField(
                        blank=True,
                        help_text="Letters of other releases do not reopen the group before this one has run.",
                        max_length=255,
                        verbose_name="resolved in release",
                    ),
                ),
                (
                    "replay_on_release",
                    models.BooleanField(
                        default=False,
                        help_text="The open letters of the group are replayed by themselves then.",
                        verbose_name="replay when that release runs",
                    ),
                ),
                (
                    "sample",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="dlq.deadletter",
                        verbose_name="sample letter",
                    ),
                ),
            ],
            options={
                "verbose_name": "group of dead letters",
                "verbose_name_plural": "groups of dead letters",
                "ordering": ("-last_seen_at", "fingerprint"),
            },
        ),
        migrations.CreateModel(
            name="GroupHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField(verbose_name="hour")),
                ("letters", models.PositiveBigIntegerField(default=0, verbose_name="letters")),
                (
                    "group",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="hours",
                        to="dlq.lettergroup",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="GroupFacet",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("facet", models.CharField(max_length=16, verbose_name="facet")),
                ("value", models.CharField(blank=True, max_length=255, verbose_name="value")),
                ("letters", models.PositiveBigIntegerField(default=0, verbose_name="letters")),
                ("last_seen_at", models.DateTimeField(verbose_name="last seen")),
                (
                    "group",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="facets",
                        to="dlq.lettergroup",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.AddField(
            model_name="deadletter",
            name="group",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="members",
                to="dlq.lettergroup",
                verbose_name="group",
            ),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["group", "failed_at"], name="dlq_group_failed"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["group", "state", "failed_at"], name="dlq_group_state_failed"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["state", "closed_at"], name="dlq_state_closed"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["stored_at"], name="dlq_stored"),
        ),
        AddGeneratedField(
            model_name="deadletter",
            name="live_digest",
            field=models.GeneratedField(
                db_persist=True,
                expression=models.Case(
                    models.When(state__in=["open", "replaying"], then=models.F("body_digest")), default=None
                ),
                null=True,
                output_field=models.CharField(max_length=64, null=True),
                verbose_name="body digest while live",
            ),
        ),
        migrations.AddConstraint(
            model_name="deadletter",
            constraint=models.UniqueConstraint(fields=("live_digest",), name="dlq_letter_live_once"),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(fields=["created_at"], name="dlq_operation_created"),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(fields=["state", "created_at"], name="dlq_operation_state_created"),
        ),
        migrations.AddConstraint(
            model_name="operation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        ["planned", "awaiting", "running", "paused", "settling", "cancelled", "closed"],
                    )
                ),
                name="dlq_operation_state",
            ),
        ),
        migrations.AddConstraint(
            model_name="operation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "closed"), _negated=True),
                    ("closed_at__isnull", False),
                    _connector="OR",
                ),
                name="dlq_operation_closed_at",
            ),
        ),
        migrations.AddField(
            model_name="operationevent",
            name="operation",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="events", to="dlq.operation"
            ),
        ),
        migrations.AddField(
            model_name="operationitem",
            name="letter",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="items",
                to="dlq.deadletter",
            ),
        ),
        migrations.AddField(
            model_name="operationitem",
            name="new_letter",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="came_back_from",
                to="dlq.deadletter",
            ),
        ),
        migrations.AddField(
            model_name="operationitem",
            name="operation",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="items",
                to="dlq.operation",
            ),
        ),
        migrations.AddIndex(
            model_name="seenrelease",
            index=models.Index(fields=["last_at"], name="dlq_release_last"),
        ),
        migrations.AddIndex(
            model_name="lettergroup",
            index=models.Index(fields=["last_seen_at"], name="dlq_group_last"),
        ),
        migrations.AddIndex(
            model_name="lettergroup",
            index=models.Index(fields=["first_seen_at"], name="dlq_group_first"),
        ),
        migrations.AddIndex(
            model_name="lettergroup",
            index=models.Index(fields=["letters"], name="dlq_group_letters"),
        ),
        migrations.AddIndex(
            model_name="lettergroup",
            index=models.Index(fields=["state", "last_seen_at"], name="dlq_group_state_last"),
        ),
        migrations.AddIndex(
            model_name="lettergroup",
            index=models.Index(fields=["task_name", "last_seen_at"], name="dlq_group_task_last"),
        ),
        migrations.AddConstraint(
            model_name="lettergroup",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ["open", "acknowledged", "snoozed", "resolved", "regressed"])
                ),
                name="dlq_group_state",
            ),
        ),
        migrations.AddIndex(
            model_name="grouphour",
            index=models.Index(fields=["hour"], name="dlq_group_hour"),
        ),
        migrations.AddConstraint(
            model_name="grouphour",
            constraint=models.UniqueConstraint(fields=("group", "hour"), name="dlq_group_hour_once"),
        ),
        migrations.AddIndex(
            model_name="groupfacet",
            index=models.Index(fields=["facet", "value"], name="dlq_group_facet"),
        ),
        migrations.AddConstraint(
            model_name="groupfacet",
            constraint=models.UniqueConstraint(
                fields=("group", "facet", "value"), name="dlq_group_facet_once"
            ),
        ),
        migrations.AddIndex(
            model_name="operationitem",
            index=models.Index(fields=["operation", "state", "position"], name="dlq_item_turn"),
        ),
        migrations.AddIndex(
            model_name="operationitem",
            index=models.Index(fields=["operation", "settled_at"], name="dlq_item_settled"),
        ),
        migrations.AddIndex(
            model_name="operationitem",
            index=models.Index(fields=["operation", "position"], name="dlq_item_position"),
        ),
        migrations.AddConstraint(
            model_name="operationitem",
            constraint=models.UniqueConstraint(fields=("operation", "letter"), name="dlq_item_once"),
        ),
        migrations.AddConstraint(
            model_name="operationitem",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ["waiting", "staged", "sent", "succeeded", "came_back", "lost", "not_sent"])
                ),
                name="dlq_item_state",
            ),
        ),
    ]
