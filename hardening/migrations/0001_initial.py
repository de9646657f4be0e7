"""Shared state, for projects whose broker is no Redis."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="State",
            fields=[
                (
                    "key",
                    models.CharField(max_length=200, primary_key=True, serialize=False, verbose_name="key"),
                ),
                ("value", models.TextField(help_text="A JSON object.", verbose_name="value")),
                (
                    "version",
                    models.BigIntegerField(
                        help_text="Random at each change: who changes names the one that was read.",
                        verbose_name="version",
                    ),
                ),
                (
                    "expires_at",
                    models.FloatField(
                        help_text="Seconds since 1970, by the database's clock.", verbose_name="expires"
                    ),
                ),
            ],
            options={
                "verbose_name": "shared state",
                "verbose_name_plural": "outages and retry budgets",
                "default_permissions": ("view", "change"),
                "indexes": [models.Index(fields=["expires_at"], name="hardening_state_expires")],
            },
        ),
    ]
