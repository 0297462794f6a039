import copy

import pytest

from django_outbox.event_types.compatibility import breaking_changes

SCHEMA = {
    "type": "object",
    "title": "An invoice",
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": {"properties": {"sku": {"type": "string"}}}},
        "name": {"type": "string", "x-gdpr-sensitive": True},
    },
    "required": ["id"],
}


def changed(change):
    new = copy.deepcopy(SCHEMA)
    change(new)
    return breaking_changes({"a.b": {"1": SCHEMA}}, {"a.b": {"1": new}})


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(title="Another", description="text"),
        lambda s: s["properties"].update(note={"type": "string"}),
        lambda s: s["properties"]["id"].update(examples=[1]),
    ],
)
def test_texts_and_new_optional_members_break_nobody(change):
    assert changed(change) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: s["properties"].pop("lines"), "/properties/lines: removed"),
        (lambda s: s["properties"]["id"].update(type="string"), "/properties/id/type: changed"),
        (lambda s: s["required"].append("name"), "/required: 'name' is now required"),
        (lambda s: s["required"].remove("id"), "/required: 'id' is no longer required"),
        (lambda s: s["properties"]["id"].update(minimum=1), "/properties/id/minimum: added"),
        (lambda s: s["properties"]["name"].pop("x-gdpr-sensitive"), "/x-gdpr-sensitive: removed"),
        (lambda s: s.update(additionalProperties=False), "/additionalProperties: added"),
        (
            lambda s: s["properties"]["lines"]["items"]["properties"]["sku"].update(type="integer"),
            "/properties/lines/items/properties/sku/type: changed",
        ),
    ],
)
def test_what_breaks_somebody_is_named_with_its_place(change, expected):
    [found] = changed(change)
    assert found.startswith("a.b version 1: ")
    assert expected in found


def test_a_new_member_breaks_consumers_of_a_closed_schema():
    old = {"a.b": {"1": {**SCHEMA, "additionalProperties": False}}}
    new = copy.deepcopy(old)
    new["a.b"]["1"]["properties"]["note"] = {"type": "string"}
    assert "refuses members" in breaking_changes(old, new)[0]


def test_a_version_may_be_added_but_not_removed():
    assert breaking_changes({"a.b": {"1": SCHEMA}}, {"a.b": {"1": SCHEMA, "2": {}}}) == []
    assert "removed" in breaking_changes({"a.b": {"1": SCHEMA}}, {})[0]
