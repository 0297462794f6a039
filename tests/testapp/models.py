"""A business in miniature: what the tests commit together with its events."""

from __future__ import annotations

from django.db import models


class Invoice(models.Model):
    number = models.CharField(max_length=50)
    version = models.PositiveIntegerField(default=1)


class LedgerEntry(models.Model):
    """One row for each time an effect took place: counting them tells once from twice."""

    account = models.CharField(max_length=100)
    reference = models.CharField(max_length=100)
    amount = models.IntegerField(default=0)


class Balance(models.Model):
    account = models.CharField(max_length=100, unique=True)
    amount = models.BigIntegerField(default=0)
