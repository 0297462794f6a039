from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Entry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "account",
                    models.CharField(
                        choices=[
                            ("receivable", "receivable"),
                            ("revenue", "revenue"),
                            ("bank", "bank"),
                        ],
                        max_length=20,
                        verbose_name="account",
                    ),
                ),
                ("reference", models.CharField(max_length=20, verbose_name="reference")),
                (
                    "amount",
                    models.DecimalField(decimal_places=2, max_digits=12, verbose_name="amount"),
                ),
                ("currency", models.CharField(max_length=3, verbose_name="currency")),
                ("booked_at", models.DateTimeField(auto_now_add=True, verbose_name="booked at")),
            ],
            options={
                "verbose_name_plural": "entries",
            },
        ),
    ]
