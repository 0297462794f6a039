"""Somebody at a browser, and messages in every state."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.test import Client
from django.utils import timezone

from django_outbox import enqueue
from django_outbox.event_types import event_type
from django_outbox.event_types.registry import forget_event_type
from django_outbox.models import OutboxMessage, Status

LIST = "/admin/django_outbox/outboxmessage/"
TOPIC = "person.registered"
NAME, TAX_ID = "Zyxwvut-Qrstu", "98765432109"


def hours(number: float) -> datetime.timedelta:
    return datetime.timedelta(hours=number)


def make(status: str = Status.DEAD, **fields: Any) -> OutboxMessage:
    """A message past the producer, as any program may write one."""
    fields = {
        "topic": f"invoice.{status}",
        "payload": {"name": "Jane Doe"},
        "headers": {"tenant": "acme"},
        **fields,
    }
    if status == Status.PUBLISHED:
        now = timezone.now()
        fields = {"created_at": now - hours(1), "published_at": now, **fields}
    return OutboxMessage.objects.create(message_id=uuid.uuid4(), status=status, **fields)


def in_flight(**fields: Any) -> OutboxMessage:
    """A message that a relay has."""
    later = timezone.now() + hours(1)
    lease = {"lease_token": uuid.uuid4(), "lease_expires_at": later, "leased_by": "host:1"}
    return make(Status.PENDING, **{"attempts": 1, **lease, **fields})


def one_in_every_state() -> dict[str, OutboxMessage]:
    """By the names of the states."""
    later = timezone.now() + hours(1)
    mine = {"aggregate_type": "invoice", "aggregate_id": "7"}
    return {
        "ready": make(Status.PENDING, topic="a.ready"),
        "scheduled": make(Status.PENDING, topic="a.scheduled", available_at=later),
        "retrying": make(
            Status.PENDING, topic="a.retrying", attempts=2, available_at=later, **mine
        ),
        "in_flight": in_flight(topic="a.in_flight"),
        "blocked": make(Status.PENDING, topic="a.blocked", **mine),
        "dead": make(Status.DEAD, topic="a.dead"),
        "published": make(Status.PUBLISHED, topic="a.published"),
        "discarded": make(Status.DISCARDED, topic="a.discarded"),
    }


@pytest.fixture
def browse(database: Any) -> Any:
    """A browser logged in as somebody with these permissions on messages, or on other models."""

    def as_somebody(*permissions: str, name: str = "") -> Client:
        names = [p if p.count("_") else f"{p}_outboxmessage" for p in permissions]
        found = User.objects.create_user(name or f"user-{uuid.uuid4()}", is_staff=True)
        found.user_permissions.set(Permission.objects.filter(codename__in=names))
        client = Client()
        client.force_login(found)
        return client

    return as_somebody


class PersonRegistered:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "person": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "x-gdpr-sensitive": True},
                    "tax_id": {"type": "string", "x-gdpr-sensitive": True},
                    "country": {"type": "string"},
                },
            },
        },
    }


@pytest.fixture
def person_registered() -> Iterator[None]:
    """An event type with personal members, found by the tax number."""
    event_type(TOPIC, index_by="/person/tax_id", index_normalisers=["digits"])(PersonRegistered)
    yield
    forget_event_type(TOPIC, 1)


@pytest.fixture
def person(database: Any, person_registered: None) -> OutboxMessage:
    """A message about a person, sealed as the producer seals it."""
    with transaction.atomic():
        payload = {"id": 1, "person": {"name": NAME, "tax_id": TAX_ID, "country": "TR"}}
        return enqueue(TOPIC, payload, aggregate=("person", "1"))
