from __future__ import annotations

import io
import uuid

from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome
from django_outbox.publishers.console import ConsolePublisher

SEALED = '{"name": {"$jwe": "eyJh.b.c.d.e"}, "city": "Zürich"}'


def message(body=SEALED, **fields):
    return Message(id=uuid.UUID(int=7), topic="customer.moved", body=body, **fields)


def test_a_message_is_shown_as_it_is_stored():
    stream = io.StringIO()
    publisher = ConsolePublisher("default", {"STREAM": stream})
    (receipt,) = publisher.publish(
        [message(aggregate_type="customer", aggregate_id="12", attempt=2)]
    )
    assert receipt.outcome is Outcome.CONFIRMED
    shown = stream.getvalue()
    assert "customer.moved 00000000-0000-0000-0000-000000000007" in shown
    assert "customer 12" in shown
    assert f"{len(SEALED.encode())} bytes, attempt 2" in shown
    assert SEALED in shown


def test_it_writes_to_standard_output_as_it_is_now(capsys):
    ConsolePublisher("default", {}).publish([message()])
    assert "customer.moved" in capsys.readouterr().out


def test_a_terminal_without_utf_8_is_no_outage():
    raw = io.BytesIO()
    publisher = ConsolePublisher("default", {"STREAM": io.TextIOWrapper(raw, encoding="ascii")})
    (receipt,) = publisher.publish([message()])
    assert receipt.outcome is Outcome.CONFIRMED
    assert b"Z\\xfcrich" in raw.getvalue()


def test_a_closed_stream_is_an_outage_and_charges_no_message():
    stream = io.StringIO()
    publisher = ConsolePublisher("default", {"STREAM": stream})
    assert publisher.probe() == ""
    stream.close()
    (receipt,) = publisher.publish([message()])
    assert receipt.outcome is Outcome.BROKER_DOWN
    assert "ValueError" in receipt.reason
    assert publisher.probe()
