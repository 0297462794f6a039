from dataclasses import replace

from hypothesis import given

from django_outbox.messages import Message
from django_outbox.wire.cloudevents import message_from, split_headers
from django_outbox.wire.kafka import to_kafka
from tests.support.messages import received
from tests.support.strategies import messages


@given(messages())
def test_a_reader_of_cloud_events_finds_the_message_in_the_record(message: Message):
    record = to_kafka(message)
    attributes, _ = split_headers({name: value.decode() for name, value in record.headers})
    found = message_from(attributes, record.value.decode())
    written = replace(message, headers=found.headers, source=message.source or "/", attempt=1)
    assert found == written
    assert record.key == (message.aggregate_id.encode() or None)


def test_own_headers_travel_as_text_and_take_the_place_of_no_attribute():
    own = {"tenant": 3, "vip": True, "none": None, "ce_id": "forged", "Content-Type": "text/html"}
    message = received(headers=own)
    headers = dict(to_kafka(message).headers)
    assert headers["tenant"] == b"3"
    assert headers["vip"] == b"true"
    assert headers["none"] == b""
    assert headers["ce_id"] == str(message.id).encode()
    assert headers["content-type"] == b"application/json"
    assert "Content-Type" not in headers
