"""What is revoked, for projects whose broker is no Redis."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("hardening", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Revoked",
            fields=[
                (
                    "key",
                    models.CharField(max_length=64, primary_key=True, serialize=False, verbose_name="key"),
                ),
                (
                    "revoke",
                    models.TextField(help_text="A task id, or a stamp, as JSON.", verbose_name="revoke"),
                ),
                (
                    "forgotten",
                    models.BooleanField(help_text="Taken back by an operator.", verbose_name="forgotten"),
                ),
                (
                    "at",
                    models.FloatField(
                        help_text="Seconds since 1970, by the database's clock.", verbose_name="at"
                    ),
                ),
                (
                    "until",
                    models.FloatField(
                        help_text="Seconds since 1970, by the database's clock.", verbose_name="until"
                    ),
                ),
            ],
            options={
                "verbose_name": "revoked task",
                "verbose_name_plural": "revoked tasks",
                "default_permissions": ("view", "change"),
                "indexes": [
                    models.Index(fields=["at"], name="hardening_revoked_at"),
                    models.Index(fields=["until"], name="hardening_revoked_until"),
                ],
            },
        ),
    ]
