import django.core.serializers.json
from django.db import migrations, models

import django_outbox.databases.clock


class Migration(migrations.Migration):
    dependencies = [
        ("django_outbox", "0002_consumers"),
    ]

    operations = [
        migrations.CreateModel(
            name="RelayProcess",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=100, unique=True, verbose_name="name")),
                (
                    "started_at",
                    models.DateTimeField(
                        db_default=django_outbox.databases.clock.DatabaseNow(),
                        verbose_name="started at",
                    ),
                ),
                (
                    "seen_at",
                    models.DateTimeField(
                        db_default=django_outbox.databases.clock.DatabaseNow(),
                        verbose_name="seen at",
                    ),
                ),
                (
                    "stopped_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="stopped at"),
                ),
                (
                    "version",
                    models.CharField(
                        blank=True, db_default="", max_length=32, verbose_name="version"
                    ),
                ),
                (
                    "topics",
                    models.TextField(blank=True, db_default="", default="", verbose_name="topics"),
                ),
                (
                    "published",
                    models.BigIntegerField(db_default=0, default=0, verbose_name="published"),
                ),
                (
                    "failed",
                    models.BigIntegerField(db_default=0, default=0, verbose_name="failed attempts"),
                ),
                ("dead", models.BigIntegerField(db_default=0, default=0, verbose_name="dead")),
                (
                    "lost",
                    models.BigIntegerField(db_default=0, default=0, verbose_name="leases lost"),
                ),
                (
                    "breakers",
                    models.JSONField(
                        blank=True,
                        db_default={},
                        default=dict,
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        verbose_name="open breakers",
                    ),
                ),
            ],
            options={
                "verbose_name": "relay",
                "verbose_name_plural": "relays",
            },
        ),
    ]
