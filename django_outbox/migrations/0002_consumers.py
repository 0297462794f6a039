import django.core.serializers.json
from django.db import migrations, models

import django_outbox.databases.clock
import django_outbox.databases.columns


class Migration(migrations.Migration):
    dependencies = [
        ("django_outbox", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="StoredResponse",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "key_digest",
                    models.CharField(max_length=64, unique=True, verbose_name="digest of the key"),
                ),
                (
                    "fingerprint",
                    models.CharField(max_length=64, verbose_name="digest of the request"),
                ),
                ("method", models.CharField(max_length=10, verbose_name="method")),
                (
                    "lease_token",
                    models.UUIDField(editable=False, null=True, verbose_name="lease token"),
                ),
                (
                    "lease_expires_at",
                    models.DateTimeField(editable=False, null=True, verbose_name="lease ends at"),
                ),
                ("status_code", models.PositiveSmallIntegerField(null=True, verbose_name="status")),
                ("headers", models.JSONField(default=dict, verbose_name="headers")),
                ("body", models.BinaryField(null=True, verbose_name="body")),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django_outbox.databases.clock.DatabaseNow(),
                        verbose_name="created at",
                    ),
                ),
                ("expires_at", models.DateTimeField(db_index=True, verbose_name="expires at")),
            ],
            options={
                "verbose_name": "stored response",
                "verbose_name_plural": "stored responses",
            },
        ),
        migrations.CreateModel(
            name="ExternalCall",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "consumer",
                    django_outbox.databases.columns.ExactCharField(
                        max_length=100, verbose_name="consumer"
                    ),
                ),
                ("message_id", models.UUIDField(verbose_name="message id")),
                (
                    "name",
                    django_outbox.databases.columns.ExactCharField(
                        blank=True, db_default="", max_length=100, verbose_name="call"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("reserved", "reserved"),
                            ("succeeded", "succeeded"),
                            ("failed", "failed"),
                            ("unknown", "unknown"),
                        ],
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                (
                    "attempts",
                    models.PositiveSmallIntegerField(
                        db_default=0, default=0, verbose_name="attempts"
                    ),
                ),
                (
                    "lease_token",
                    models.UUIDField(editable=False, null=True, verbose_name="lease token"),
                ),
                (
                    "lease_expires_at",
                    models.DateTimeField(editable=False, null=True, verbose_name="lease ends at"),
                ),
                (
                    "outcome",
                    models.JSONField(
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        null=True,
                        verbose_name="outcome",
                    ),
                ),
                (
                    "last_error",
                    models.CharField(
                        blank=True, db_default="", max_length=255, verbose_name="last error"
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django_outbox.databases.clock.DatabaseNow(),
                        verbose_name="created at",
                    ),
                ),
                (
                    "updated_at",
                    models.DateTimeField(
                        db_default=django_outbox.databases.clock.DatabaseNow(),
                        verbose_name="updated at",
                    ),
                ),
            ],
            options={
                "verbose_name": "external call",
                "verbose_name_plural": "external calls",
                "indexes": [
                    models.Index(fields=["state", "updated_at"], name="django_outbox_call_age")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("consumer", "message_id", "name"), name="django_outbox_call_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["reserved", "succeeded", "failed", "unknown"])
                        ),
                        name="django_outbox_call_state",
                    ),
                ],
            },
        ),
    ]
