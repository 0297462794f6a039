from decimal import Decimal

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Customer",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=200, verbose_name="name")),
                ("email", models.EmailField(max_length=254, verbose_name="e-mail")),
                ("tax_id", models.CharField(blank=True, max_length=30, verbose_name="tax number")),
            ],
        ),
        migrations.CreateModel(
            name="Invoice",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "number",
                    models.CharField(
                        editable=False, max_length=20, null=True, unique=True, verbose_name="number"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("draft", "draft"), ("issued", "issued"), ("paid", "paid")],
                        default="draft",
                        editable=False,
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                (
                    "currency",
                    models.CharField(default="EUR", max_length=3, verbose_name="currency"),
                ),
                (
                    "total",
                    models.DecimalField(
                        decimal_places=2,
                        default=Decimal("0"),
                        editable=False,
                        max_digits=12,
                        verbose_name="total",
                    ),
                ),
                (
                    "issued_on",
                    models.DateField(editable=False, null=True, verbose_name="issued on"),
                ),
                ("version", models.PositiveIntegerField(default=0, editable=False)),
                (
                    "customer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="invoices",
                        to="billing.customer",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="InvoiceLine",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("description", models.CharField(max_length=200, verbose_name="description")),
                ("quantity", models.PositiveIntegerField(default=1, verbose_name="quantity")),
                (
                    "unit_price",
                    models.DecimalField(decimal_places=2, max_digits=12, verbose_name="unit price"),
                ),
                (
                    "invoice",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="lines",
                        to="billing.invoice",
                    ),
                ),
            ],
        ),
    ]
