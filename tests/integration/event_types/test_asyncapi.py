import json
from io import StringIO

import jsonschema_rs
import pytest
from django.core.management import CommandError, call_command

from django_outbox.event_types.asyncapi import asyncapi_document
from django_outbox.event_types.registry import event_type, find_event_type, forget_event_type
from tests.support.node import npm_package

TOPIC = "asyncapi.registered"


class Registered:
    """A customer was registered."""

    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "email": {"type": "string", "format": "email", "x-gdpr-sensitive": True},
        },
        "required": ["id", "email"],
    }


@pytest.fixture(autouse=True)
def registered():
    event_type(TOPIC)(Registered)
    event_type(TOPIC, version=2)(Registered)
    yield
    forget_event_type(TOPIC, 1)
    forget_event_type(TOPIC, 2)


def official_schema():
    path = npm_package("@asyncapi/specs", "6.11.1") / "schemas" / "3.0.0.json"
    return json.loads(path.read_text())


def test_the_document_is_valid_by_the_official_schema():
    types = [find_event_type(TOPIC, 1), find_event_type(TOPIC, 2)]
    document = asyncapi_document(types, title="Billing", version="1.0.0", exchange="domain.events")
    validator = jsonschema_rs.Draft7Validator(official_schema())
    assert [error.message for error in validator.iter_errors(document)] == []
    assert not validator.is_valid({**document, "channels": [1]}), "the official schema says no, too"


def test_both_versions_stand_in_one_channel_and_personal_members_are_sealed():
    out = StringIO()
    call_command("outbox_asyncapi", "--title", "Billing", stdout=out)
    document = json.loads(out.getvalue())
    assert document["info"]["title"] == "Billing"
    assert set(document["channels"][TOPIC]["messages"]) == {"v1", "v2"}
    message = document["components"]["messages"][f"{TOPIC}.v1"]
    email = message["payload"]["schema"]["properties"]["email"]
    assert email["required"] == ["$jwe"]
    assert message["description"] == "A customer was registered."


def test_a_changed_schema_is_found_against_the_committed_snapshot(tmp_path, monkeypatch):
    snapshot = tmp_path / "event-types.json"
    call_command("outbox_schema", "write", "--snapshot", snapshot, stdout=StringIO())
    call_command("outbox_schema", "check", "--snapshot", snapshot, stdout=StringIO())
    changed = {**Registered.schema, "required": ["id"]}
    forget_event_type(TOPIC, 1)
    monkeypatch.setattr(Registered, "schema", changed)
    event_type(TOPIC)(Registered)
    with pytest.raises(CommandError, match=f"{TOPIC} version 1: /required: 'email' is no longer"):
        call_command("outbox_schema", "check", "--snapshot", snapshot)


def test_a_missing_or_broken_snapshot_is_explained(tmp_path):
    with pytest.raises(CommandError, match="outbox_schema write"):
        call_command("outbox_schema", "check", "--snapshot", tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(CommandError, match="is not JSON"):
        call_command("outbox_schema", "check", "--snapshot", broken)
