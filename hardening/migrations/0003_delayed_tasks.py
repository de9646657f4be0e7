"""Delayed tasks, for projects whose broker is no Redis."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("hardening", "0002_revoked"),
    ]

    operations = [
        migrations.CreateModel(
            name="DelayedTask",
            fields=[
                (
                    "number",
                    models.BigAutoField(primary_key=True, serialize=False, verbose_name="order of parking"),
                ),
                ("key", models.CharField(max_length=32, unique=True, verbose_name="id")),
                ("state", models.CharField(max_length=10, verbose_name="state")),
                ("task_id", models.CharField(db_index=True, max_length=200, verbose_name="task id")),
                ("task", models.CharField(max_length=200, verbose_name="task")),
                ("queue", models.CharField(max_length=200, verbose_name="queue")),
                ("list_key", models.CharField(max_length=255, verbose_name="list in Redis")),
                ("attempt", models.IntegerField(verbose_name="attempt")),
                ("due_at", models.FloatField(help_text="Seconds since 1970.", verbose_name="due")),
                (
                    "next_at",
                    models.FloatField(
                        help_text="When it is sent: due, or later after a refusal by the broker.",
                        verbose_name="next turn",
                    ),
                ),
                (
                    "parked_at",
                    models.FloatField(
                        help_text="Seconds since 1970, by the database's clock.", verbose_name="parked"
                    ),
                ),
                (
                    "claimed_until",
                    models.FloatField(
                        help_text="Until then one worker sends it.", verbose_name="claimed until"
                    ),
                ),
                ("claim", models.BigIntegerField(verbose_name="claim")),
                ("ended_at", models.FloatField(verbose_name="released or cancelled")),
                ("ended_by", models.CharField(max_length=200, verbose_name="cancelled by")),
                ("message", models.TextField(verbose_name="message")),
            ],
            options={
                "verbose_name": "delayed task",
                "verbose_name_plural": "delayed tasks",
                "default_permissions": ("view", "change"),
                "indexes": [
                    models.Index(fields=["state", "next_at", "number"], name="hardening_delayed_next"),
                    models.Index(fields=["state", "ended_at"], name="hardening_delayed_ended"),
                ],
            },
        ),
    ]
