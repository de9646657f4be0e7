"""Verdict and rule of each attempt, and of the letter those of its last.

Defaults of the database: workers of the version before write rows until they are replaced.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("dlq", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="rule",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=255, verbose_name="rule"
            ),
        ),
        migrations.AddField(
            model_name="attempt",
            name="verdict",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=16, verbose_name="verdict"
            ),
        ),
        migrations.AddField(
            model_name="deadletter",
            name="rule",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=255, verbose_name="rule"
            ),
        ),
        migrations.AddField(
            model_name="deadletter",
            name="verdict",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=16, verbose_name="verdict"
            ),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["verdict", "failed_at"], name="dlq_verdict_failed"),
        ),
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(
                fields=["verdict", "state", "error_class", "task_name", "first_seen_at", "failed_at"],
                name="dlq_unclassified",
            ),
        ),
    ]
