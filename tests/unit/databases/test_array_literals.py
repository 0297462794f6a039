from __future__ import annotations

from uuid import UUID

import pytest

from django_outbox.databases.array_literals import plain_array, text_array


@pytest.mark.parametrize(
    ("values", "literal"),
    [
        ([], "{}"),
        ([""], '{""}'),
        (["", ""], '{"",""}'),
        (["a", "b"], '{"a","b"}'),
        (["NULL", "{}", "a,b", " "], '{"NULL","{}","a,b"," "}'),
        (['say "x"', "back\\slash", '\\"'], r'{"say \"x\"","back\\slash","\\\""}'),
    ],
)
def test_texts_are_quoted(values: list[str], literal: str) -> None:
    assert text_array(values) == literal


@pytest.mark.parametrize("values", [["\x00"], ["a", "b\x00c"], ["a\x00", "b"]])
def test_nul_is_refused_wherever_it_stands(values: list[str]) -> None:
    with pytest.raises(ValueError, match="NUL"):
        text_array(values)


def test_numbers_uuids_and_nothing_need_no_quotes() -> None:
    assert plain_array([1, -2, 0.5, None, UUID(int=1)]) == (
        "{1,-2,0.5,NULL,00000000-0000-0000-0000-000000000001}"
    )
    assert plain_array([]) == "{}"
