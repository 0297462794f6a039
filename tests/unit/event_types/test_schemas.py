import pytest

from django_outbox.event_types.schemas import CompiledSchema, Violation

SECRET = "rare-secret-value"


def test_a_valid_payload_breaks_nothing():
    assert CompiledSchema({"type": "object"}).violations({"a": 1}) == []


@pytest.mark.parametrize(
    ("schema", "payload", "expected"),
    [
        ({"type": "string"}, 1, Violation("", "type")),
        ({"properties": {"a": {"type": "integer"}}}, {"a": SECRET}, Violation("/a", "type")),
        ({"properties": {"a/b": {"const": 1}}}, {"a/b": SECRET}, Violation("/a~1b", "const")),
        (
            {"properties": {"l": {"items": {"properties": {"n": {"enum": [1]}}}}}},
            {"l": [{"n": 1}, {"n": SECRET}]},
            Violation("/l/1/n", "enum"),
        ),
        ({"additionalProperties": {"type": "integer"}}, {SECRET: "x"}, Violation("/*", "type")),
        ({"properties": {"m": {"format": "email"}}}, {"m": SECRET}, Violation("/m", "format")),
        ({"additionalProperties": False}, {SECRET: 1}, Violation("", "additionalProperties")),
    ],
)
def test_a_violation_names_path_and_keyword_and_never_a_value(schema, payload, expected):
    found = CompiledSchema(schema).violations(payload)
    assert found == [expected]
    assert SECRET not in f"{found!r} {found[0]}"


@pytest.mark.parametrize(
    "schema", [{"type": "strin"}, {"$ref": "https://elsewhere.example/x"}, {"pattern": "("}]
)
def test_a_faulty_schema_is_refused_when_it_is_compiled(schema):
    with pytest.raises(ValueError, match=r"not a valid JSON Schema|cannot be resolved"):
        CompiledSchema(schema)


def test_many_violations_are_cut_short():
    schema = {"items": {"type": "integer"}}
    assert len(CompiledSchema(schema).violations(["x"] * 1000)) == 5
