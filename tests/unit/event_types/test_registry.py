import dataclasses
from typing import Annotated

import msgspec
import pydantic
import pytest

from django_outbox.event_types.adapters import plain_payload
from django_outbox.event_types.marks import Mark
from django_outbox.event_types.registry import (
    InvalidEventType,
    all_event_types,
    event_type,
    find_event_type,
    forget_event_type,
    latest_version,
)
from django_outbox.event_types.upcasting import NoUpcaster, forget_upcaster, upcast, upcasts

TOPIC = "unit.registered"


@pytest.fixture(autouse=True)
def clean_registry():
    yield
    for version in range(1, 5):
        forget_event_type(TOPIC, version)
        forget_upcaster(TOPIC, version)


class BySchema:
    """A thing was registered."""

    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": "string", "x-gdpr-sensitive": True},
        },
        "required": ["id"],
    }


class ByPydantic(pydantic.BaseModel):
    id: int
    name: str = pydantic.Field(json_schema_extra={"x-gdpr-sensitive": True})


class ByMsgspec(msgspec.Struct):
    id: int
    name: Annotated[str, msgspec.Meta(extra_json_schema={"x-gdpr-sensitive": True})]


@dataclasses.dataclass
class ByDataclass:
    id: int
    name: Annotated[str, msgspec.Meta(extra_json_schema={"x-gdpr-sensitive": True})]


@pytest.mark.parametrize("definition", [BySchema, ByPydantic, ByMsgspec, ByDataclass])
def test_a_payload_is_described_by_schema_model_struct_or_dataclass(definition):
    event_type(TOPIC)(definition)
    found = find_event_type(TOPIC, 1)
    assert found.clear.violations({"id": 1, "name": "x"}) == []
    assert found.clear.violations({"id": "1", "name": "x"}) != []
    assert [m.pointer for m in found.marks.members({"id": 1, "name": "x"}, Mark.SENSITIVE)] == [
        "/name"
    ]
    assert found.wire.violations({"id": 1, "name": {"$jwe": "a.b.c.d.e"}}) == []
    assert found.wire.violations({"id": 1, "name": "clear"}) != []


@pytest.mark.parametrize(
    "payload", [ByPydantic(id=1, name="x"), ByMsgspec(1, "x"), ByDataclass(1, "x")]
)
def test_an_instance_serves_as_the_payload(payload):
    assert plain_payload(payload) == {"id": 1, "name": "x"}


def test_a_docstring_describes_the_event_type():
    event_type(TOPIC)(BySchema)
    assert find_event_type(TOPIC, 1).description == "A thing was registered."


def test_versions_live_side_by_side_and_the_newest_is_known():
    event_type(TOPIC, version=2)(BySchema)
    event_type(TOPIC, version=1)(ByPydantic)
    assert latest_version(TOPIC) == 2
    assert [e.version for e in all_event_types() if e.topic == TOPIC] == [1, 2]


def test_the_same_version_by_two_classes_is_refused():
    event_type(TOPIC)(BySchema)
    event_type(TOPIC)(BySchema)  # a reloaded module registers the same class again
    with pytest.raises(InvalidEventType, match=r"already registered by .*BySchema"):
        event_type(TOPIC)(ByPydantic)


@pytest.mark.parametrize(
    ("definition", "options", "reason"),
    [
        (type("NoSchema", (), {}), {}, "no 'schema'"),
        (type("Faulty", (), {"schema": {"type": "strin"}}), {}, "not a valid JSON Schema"),
        (BySchema, {"version": 0}, "from 1 to"),
        (BySchema, {"version": 1.5}, "whole number"),
        (BySchema, {"version": True}, "whole number"),
        (BySchema, {"index_by": "/nothing"}, "no member"),
        (BySchema, {"index_by": "name"}, "no member"),
        (BySchema, {"index_by": "/²"}, "no member"),
        (BySchema, {"aggregate_id": "/name"}, "orders messages"),
        (BySchema, {"sequence": "/name"}, "orders messages"),
    ],
)
def test_a_faulty_event_type_is_refused_and_named(definition, options, reason):
    with pytest.raises(InvalidEventType, match=reason) as caught:
        event_type(TOPIC, **options)(definition)
    assert TOPIC in str(caught.value)


@pytest.mark.parametrize("topic", ["", "invoice issued", "invoice.*", "invoice..issued"])
def test_a_topic_that_nobody_could_enqueue_is_refused(topic):
    with pytest.raises(InvalidEventType, match="words separated by dots"):
        event_type(topic)(BySchema)


def test_upcasters_lead_one_version_at_a_time_to_the_newest():
    event_type(TOPIC, version=3)(BySchema)
    upcasts(TOPIC, 1)(lambda payload: {**payload, "a": 1})
    upcasts(TOPIC, 2)(lambda payload: {**payload, "b": payload["a"] + 1})
    assert upcast(TOPIC, 1, {"id": 1}) == (3, {"id": 1, "a": 1, "b": 2})
    assert upcast(TOPIC, 3, {"id": 1}) == (3, {"id": 1})


def test_a_missing_step_is_an_error_unless_the_version_is_registered():
    event_type(TOPIC, version=3)(BySchema)
    with pytest.raises(NoUpcaster, match="from version 1 to 2"):
        upcast(TOPIC, 1, {})
    event_type(TOPIC, version=1)(ByPydantic)
    assert upcast(TOPIC, 1, {}) == (1, {})


def test_a_second_upcaster_of_one_step_is_refused():
    def one(payload):
        return payload

    def other(payload):
        return payload

    upcasts(TOPIC, 1)(one)
    with pytest.raises(InvalidEventType, match="already has an upcaster"):
        upcasts(TOPIC, 1)(other)
