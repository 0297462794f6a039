from __future__ import annotations

import uuid

import pytest

from django_outbox.messages import Message
from django_outbox.publishers import locmem
from django_outbox.publishers.base import Outcome


@pytest.fixture(autouse=True)
def _empty():
    locmem.outbox.clear()
    yield
    locmem.outbox.clear()


def test_what_is_published_is_kept_in_order_and_confirmed():
    messages = [Message(id=uuid.uuid4(), topic=f"a.{n}", body="{}") for n in range(3)]
    publisher = locmem.LocMemPublisher("default", {})
    receipts = publisher.publish(messages)
    assert locmem.outbox == messages
    assert [receipt.message_id for receipt in receipts] == [message.id for message in messages]
    assert {receipt.outcome for receipt in receipts} == {Outcome.CONFIRMED}


def test_closing_keeps_what_was_published():
    publisher = locmem.LocMemPublisher("default", {})
    publisher.publish([Message(id=uuid.uuid4(), topic="a", body="{}")])
    publisher.close()
    assert publisher.probe() == ""
    assert len(locmem.outbox) == 1
