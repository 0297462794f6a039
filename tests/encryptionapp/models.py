"""Models with sealed columns, and their twins in clear that must answer every question alike."""

from __future__ import annotations

from django.db import models

from django_outbox.encryption import (
    BlindIndexField,
    EncryptedBinaryField,
    EncryptedBooleanField,
    EncryptedCharField,
    EncryptedDateField,
    EncryptedDateTimeField,
    EncryptedDecimalField,
    EncryptedEmailField,
    EncryptedIntegerField,
    EncryptedJSONField,
    EncryptedTextField,
)


class Customer(models.Model):
    """Sealed, indexed and unique; and sealed alone."""

    name = models.CharField(max_length=100, blank=True)
    tax_id = EncryptedCharField(max_length=20, null=True, blank=True)
    tax_id_index = BlindIndexField("tax_id", normalisers=["digits"], unique=True)
    surname = EncryptedTextField(null=True, blank=True)
    surname_index = BlindIndexField("surname", normalisers=["strip", "turkish_casefold"])
    notes = EncryptedTextField(default="", blank=True)


class Twin(models.Model):
    """The same in clear: what Django answers here, the sealed model has to answer too."""

    name = models.CharField(max_length=100, blank=True)
    tax_id = models.CharField(max_length=20, null=True, blank=True, unique=True)
    surname = models.TextField(null=True, blank=True)
    notes = models.TextField(default="", blank=True)


class Order(models.Model):
    """Reaches both through joins."""

    customer = models.ForeignKey(
        Customer, models.CASCADE, null=True, blank=True, related_name="orders"
    )
    twin = models.ForeignKey(Twin, models.CASCADE, null=True, blank=True, related_name="orders")
    number = models.IntegerField()


class Everything(models.Model):
    """One field of each type, each may be NULL."""

    text = EncryptedTextField(null=True, blank=True, max_length=2_000_000)
    char = EncryptedCharField(max_length=50, null=True, blank=True)
    email = EncryptedEmailField(null=True, blank=True)
    integer = EncryptedIntegerField(null=True, blank=True)
    decimal = EncryptedDecimalField(max_digits=12, decimal_places=2, null=True, blank=True)
    boolean = EncryptedBooleanField(null=True, blank=True)
    date = EncryptedDateField(null=True, blank=True)
    datetime = EncryptedDateTimeField(null=True, blank=True)
    json = EncryptedJSONField(null=True, blank=True)
    binary = EncryptedBinaryField(null=True, blank=True, editable=True)
    integer_index = BlindIndexField("integer")
    email_index = BlindIndexField("email", normalisers="email")


class Person(models.Model):
    """An abstract parent: each child's field is a context of its own."""

    passport = EncryptedCharField(max_length=20)

    class Meta:
        abstract = True


class Employee(Person):
    pass


class Visitor(Person):
    pass


class Branch(models.Model):
    """Unique together with another field, through a constraint."""

    tenant = models.CharField(max_length=20)
    account = EncryptedCharField(max_length=40)
    account_index = BlindIndexField("account", normalisers=["strip", "casefold"])

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="encryptionapp_branch_account", fields=["tenant", "account_index"]
            )
        ]


class Legacy(models.Model):
    """A table that held clear values before it was sealed."""

    tax_id = EncryptedCharField(max_length=20, null=True, blank=True)
    tax_id_index = BlindIndexField("tax_id", normalisers=["digits"], unique=True)
    counter = models.IntegerField(default=0)
