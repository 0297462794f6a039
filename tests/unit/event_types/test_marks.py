import json
from itertools import product

import pytest

from django_outbox.event_types.marks import Mark, Marks
from django_outbox.event_types.registry import SEALED_MEMBER
from django_outbox.event_types.schemas import CompiledSchema

SEALED = {"$jwe": "a.b.c.d.e"}
PERSONAL = {"type": "string", "x-gdpr-sensitive": True}


def obj(**properties):
    return {"type": "object", "properties": properties}


def pointers(schema, payload, mark=Mark.SENSITIVE):
    return [member.pointer for member in Marks(schema).members(payload, mark)]


@pytest.mark.parametrize(
    ("schema", "payload", "expected"),
    [
        (obj(name=PERSONAL), {"name": "x", "other": 1}, ["/name"]),
        (obj(name=PERSONAL), {"other": 1}, []),
        (obj(name=PERSONAL), {"name": None}, ["/name"]),
        (obj(a=obj(b=obj(c=PERSONAL))), {"a": {"b": {"c": 1}}}, ["/a/b/c"]),
        (
            obj(lines={"type": "array", "items": obj(to=PERSONAL)}),
            {"lines": [{"to": "x"}, {}, {"to": "y"}]},
            ["/lines/0/to", "/lines/2/to"],
        ),
        (
            obj(pair={"prefixItems": [{"type": "string"}, PERSONAL], "items": PERSONAL}),
            {"pair": ["clear", "x", "y"]},
            ["/pair/1", "/pair/2"],
        ),
        (
            {"type": "object", "additionalProperties": PERSONAL, "properties": {"id": {}}},
            {"id": 1, "x": "a", "a/b": "c"},
            ["/x", "/a~1b"],
        ),
        ({"patternProperties": {"^p_": PERSONAL}}, {"p_x": 1, "q": 2}, ["/p_x"]),
        ({"anyOf": [obj(a=PERSONAL), obj(b=PERSONAL)]}, {"a": 1, "b": 2}, ["/a", "/b"]),
        (
            {**obj(c={"$ref": "#/$defs/C"}), "$defs": {"C": obj(mail=PERSONAL)}},
            {"c": {"mail": 1}},
            ["/c/mail"],
        ),
        (
            obj(box={"type": "object", "x-gdpr-sensitive": True, "properties": {"in": PERSONAL}}),
            {"box": {"in": 1}},
            ["/box"],
        ),
        (
            {"allOf": [obj(name=PERSONAL)], "unevaluatedProperties": False},
            {"name": "x"},
            ["/name"],
        ),
        (
            {**obj(a={"$dynamicRef": "#n"}), "$defs": {"N": {"$dynamicAnchor": "n", **PERSONAL}}},
            {"a": "x"},
            ["/a"],
        ),
        ({**obj(a={"$ref": "#/$defs/N%20m"}), "$defs": {"N m": PERSONAL}}, {"a": "x"}, ["/a"]),
        # As the validator reads them: Python has Arabic digits among \d, and no BOM among \s.
        ({"patternProperties": {r"^\D+$": PERSONAL}}, {"٣": "x"}, ["/٣"]),
        ({"patternProperties": {r"^\s$": PERSONAL}}, {"\ufeff": "x"}, ["/\ufeff"]),
        ({"patternProperties": {r"^\p{Lu}": PERSONAL}}, {"Ö": "x", "ö": "y"}, ["/Ö"]),
    ],
)
def test_marked_members_are_found_by_their_path(schema, payload, expected):
    assert pointers(schema, payload) == expected


def test_a_recursive_schema_is_walked_to_any_depth():
    schema = {
        "$defs": {
            "Node": obj(name=PERSONAL, below={"type": "array", "items": {"$ref": "#/$defs/Node"}})
        },
        "$ref": "#/$defs/Node",
    }
    payload = {"name": "a", "below": [{"below": [{"name": "c"}]}]}
    assert pointers(schema, payload) == ["/name", "/below/0/below/0/name"]


def test_payloads_leave_nothing_behind_in_a_recursive_schema():
    """Else somebody who sends ever other paths would fill the memory."""
    tree = {"$ref": "#"}
    marks = Marks({**obj(left=tree, right=tree, name=PERSONAL), "additionalProperties": tree})

    def kept():
        return len(marks._position._known)

    pointers_of(marks, {"left": {"name": "x"}})
    before = kept()
    for path in product(["left", "right", "other"], repeat=6):
        payload = {"name": "x"}
        for step in path:
            payload = {step: payload}
        assert pointers_of(marks, payload) == ["/" + "/".join(reversed(path)) + "/name"]
    assert kept() == before


def pointers_of(marks, payload):
    return [member.pointer for member in marks.members(payload, Mark.SENSITIVE)]


def test_forbidden_members_are_found_apart_from_sensitive_ones():
    schema = obj(password={"x-gdpr-forbidden": True}, name=PERSONAL)
    assert pointers(schema, {"password": 1, "name": 2}, Mark.FORBIDDEN) == ["/password"]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"x-gdpr-sensitive": True}, "whole payload"),
        (obj(a={"x-gdpr-sensitive": "yes"}), "true or false"),
        ({"not": obj(a=PERSONAL)}, "cannot be acted upon"),
        (obj(a={"type": "array", "contains": PERSONAL}), "cannot be acted upon"),
        ({"propertyNames": PERSONAL}, "cannot be acted upon"),
        ({**obj(a={"type": "string"}), "allOf": [obj(a=PERSONAL)]}, "in both"),
        (obj(a={"$ref": "https://elsewhere.example/schema"}), "leaves the document"),
        (obj(a={"$ref": "#/$defs/nothing"}), "points to nothing"),
        (obj(a={"$id": "https://example.com/a", **PERSONAL}), r"\$id of its own"),
    ],
)
def test_a_mark_that_cannot_be_acted_upon_is_refused(schema, reason):
    with pytest.raises(ValueError, match=reason):
        Marks(schema)


def test_the_wire_schema_has_the_wrapper_in_place_of_sensitive_members():
    schema = {
        **obj(id={"type": "integer"}, mail={"$ref": "#/$defs/Mail"}),
        "required": ["mail"],
        "$defs": {"Mail": {"type": "string", "x-gdpr-sensitive": True}},
    }
    wire = Marks(schema).wire_schema(SEALED_MEMBER)
    assert wire["properties"]["mail"] == SEALED_MEMBER
    assert wire["properties"]["id"] == {"type": "integer"}
    assert wire["required"] == ["mail"]
    assert "x-gdpr-sensitive" not in json.dumps(wire)


def discriminated(kind, **properties):
    return {**obj(kind={"const": kind, "x-gdpr-sensitive": True}, **properties)}


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [discriminated("person"), discriminated("firm")]},
        {
            "oneOf": [discriminated("person"), discriminated("firm")],
            "anyOf": [{"minProperties": 1}],
        },
        {
            **obj(kind=PERSONAL),
            "if": discriminated("firm"),
            "then": {"required": ["number"]},
        },
        {**obj(kind=PERSONAL), "not": obj(kind={"type": "object"})},
        obj(kind=PERSONAL, all={"items": obj(to=PERSONAL), "contains": obj(to={"const": "x"})}),
    ],
)
def test_what_decides_by_a_sealed_value_is_not_asked_while_it_is_sealed(schema):
    clear, wire = {"kind": "person", "all": [{"to": "x"}]}, Marks(schema).wire_schema(SEALED_MEMBER)
    assert CompiledSchema(schema).violations(clear) == []
    travelling = {"kind": SEALED, "all": [{"to": SEALED}]}
    assert CompiledSchema(wire).violations(travelling) == []
    assert CompiledSchema(wire).violations({**travelling, "kind": "person"}) != []


def test_names_that_the_schema_does_not_give_are_not_shown():
    schema = obj(by_mail={"additionalProperties": obj(name=PERSONAL)})
    payload = {"by_mail": {"ayse@example.com": {"name": "x"}}}
    (member,) = Marks(schema).members(payload, Mark.SENSITIVE)
    assert (member.pointer, member.shown) == ("/by_mail/ayse@example.com/name", "/by_mail/*/name")
    assert "ayse" not in repr(member)


def test_a_member_can_be_asked_for_by_its_pointer():
    marks = Marks(obj(customer=obj(tax_id=PERSONAL, country={"type": "string"})))
    assert marks.cover("/customer/tax_id", Mark.SENSITIVE)
    assert not marks.cover("/customer/country", Mark.SENSITIVE)
    assert marks.describe("/customer/country")
    assert not marks.describe("/customer/name")
