from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.consumers.idempotency import MalformedKey, parse_key

UUID_KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (f'"{UUID_KEY}"', UUID_KEY),  # the draft
        (UUID_KEY, UUID_KEY),  # Stripe
        (f" {UUID_KEY}\t", UUID_KEY),
        ('"with space, and comma"', "with space, and comma"),
        (r'"a \"quote\" and a \\"', 'a "quote" and a \\'),
        ("order:4711/1", "order:4711/1"),
        ("x" * 255, "x" * 255),
        (f'"{"x" * 255}"', "x" * 255),
        (r'"\""', '"'),
    ],
)
def test_a_key_is_read_quoted_or_bare(header, key):
    assert parse_key(header) == key


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        '""',
        "x" * 256,
        f'"{"x" * 256}"',
        '"unbalanced',
        'unbalanced"',
        '"a","b"',
        "a,b",
        "two words",
        '"ü"',
        "ü",
        '"tab\there"',
        "nul\x00",
        r'"bad \escape"',
        '"a";p=1',
        '"a"\n',
    ],
)
def test_what_is_no_key_is_refused_without_being_repeated(header):
    with pytest.raises(MalformedKey) as refused:
        parse_key(header)
    assert len(header.strip()) < 3 or header not in str(refused.value)


@given(st.text(st.sampled_from(string.printable[:95]), min_size=1, max_size=255))
def test_every_printable_key_survives_quoting(key):
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_key(f'"{escaped}"') == key


@given(st.text())
def test_any_header_is_a_key_or_malformed(header):
    try:
        key = parse_key(header)
    except MalformedKey:
        return
    assert 1 <= len(key) <= 255
    assert key.isascii()
