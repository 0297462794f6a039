"""Sealed members: one message, one topic, one place."""

from __future__ import annotations

import json
import os
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.encryption.exceptions import (
    DecryptionFailed,
    KeyDestroyed,
    KeyDisabled,
    UnknownKey,
)
from django_outbox.encryption.jwe import (
    exported_jwk,
    is_wrapper,
    member_kid,
    open_member,
    seal_member,
    wrap,
)
from django_outbox.encryption.keyrings import Key, Keyring, KeyState
from django_outbox.encryption.tokens import encode_bytes

KEY = Key.of("2026a", os.urandom(32))
RING = Keyring.of("default", [KEY])
PLACE = {"topic": "customer.registered", "message_id": uuid4(), "pointer": "/customer/email"}


def sealed(plaintext: str = '"ayse"', ring: Keyring = RING) -> str:
    return seal_member(plaintext, keyring=ring, **PLACE)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c, max_size=3)
    )
)
def test_a_member_opens_as_what_it_was(value: object):
    text = json.dumps(value)
    assert open_member(sealed(text), keyring=RING, **PLACE) == text


@pytest.mark.parametrize(
    ("name", "other", "word"),
    [
        ("topic", "customer.renamed", "topic"),
        ("message_id", uuid4(), "message"),
        ("pointer", "/customer/name", "place"),
    ],
)
def test_a_member_moved_elsewhere_does_not_open(name: str, other: object, word: str):
    with pytest.raises(DecryptionFailed, match=word):
        open_member(sealed(), keyring=RING, **{**PLACE, name: other})


def test_a_header_rewritten_for_another_place_does_not_open():
    _header, *rest = sealed().split(".")
    header = {"alg": "A256KW", "enc": "A256GCM", "kid": "2026a", "msg": str(PLACE["message_id"])}
    forged = {**header, "ptr": "/customer/name", "top": "customer.registered"}
    token = ".".join([encode_bytes(json.dumps(forged).encode()), *rest])
    with pytest.raises(DecryptionFailed, match="damaged"):
        open_member(token, keyring=RING, **{**PLACE, "pointer": "/customer/name"})


def test_no_character_of_a_member_can_be_changed():
    token = sealed()
    for position, character in enumerate(token):
        changed = token[:position] + ("b" if character != "b" else "c") + token[position + 1 :]
        with pytest.raises((DecryptionFailed, UnknownKey)):
            open_member(changed, keyring=RING, **PLACE)


@pytest.mark.parametrize(
    "change",
    [
        {"alg": "dir"},
        {"alg": "none"},
        {"enc": "A128GCM"},
        {"zip": "DEF"},
        {"crit": ["exp"]},
        {"kid": 7},
        {"kid": "a personal value, perhaps"},
    ],
)
def test_another_form_of_jwe_is_refused(change: dict[str, object]):
    header = {
        "alg": "A256KW",
        "enc": "A256GCM",
        "kid": "2026a",
        "msg": str(PLACE["message_id"]),
        "ptr": PLACE["pointer"],
        "top": PLACE["topic"],
    } | change
    token = ".".join([encode_bytes(json.dumps(header).encode()), *sealed().split(".")[1:]])
    with pytest.raises((DecryptionFailed, UnknownKey)) as caught:
        open_member(token, keyring=RING, **PLACE)
    assert "personal" not in str(caught.value)


@pytest.mark.parametrize(
    "header",
    [
        b'{"alg":"A256KW","enc":"A256GCM","kid":"other","kid":"2026a"}',
        '{"alg":"A256KW","enc":"A256GCM","kid":"2026a"}'.encode("utf-16"),
        b'{"kid":' + b"9" * 10_000 + b"}",
        b"[" * 100_000,
    ],
    ids=["a name twice", "not UTF-8", "a huge number", "deeply nested"],
)
def test_a_header_that_others_might_read_otherwise_is_refused(header: bytes):
    token = ".".join([encode_bytes(header), *sealed().split(".")[1:]])
    with pytest.raises(DecryptionFailed, match="damaged: its header"):
        open_member(token, keyring=RING, **PLACE)


@pytest.mark.parametrize(
    "token",
    ["", ".", "....", "a.b.c.d.e", "é.b.c.d.e", "W10.b.c.d.e", "bnVsbA.b.c.d.e", "x" * 10_000],
)
def test_what_is_no_jwe_does_not_open(token: str):
    with pytest.raises(DecryptionFailed):
        open_member(token, keyring=RING, **PLACE)


@pytest.mark.parametrize(
    ("state", "error"),
    [(KeyState.DISABLED, KeyDisabled), (KeyState.DESTROYED, KeyDestroyed), (None, UnknownKey)],
)
def test_a_key_that_may_not_open_says_why(state: KeyState | None, error: type[Exception]):
    token = sealed()
    keys = [Key.of("next", os.urandom(32))]
    if state is KeyState.DESTROYED:
        keys.append(Key.destroyed("2026a", KEY.fingerprint))
    elif state:
        keys.append(Key.of("2026a", KEY.secret, state))
    with pytest.raises(error, match="2026a"):
        open_member(token, keyring=Keyring.of("default", keys), **PLACE)


def test_a_retired_key_still_opens():
    ring = Keyring.of(
        "default", [Key.of("next", os.urandom(32)), Key.of("2026a", KEY.secret, KeyState.RETIRED)]
    )
    assert open_member(sealed(), keyring=ring, **PLACE) == '"ayse"'
    assert member_kid(sealed()) == "2026a"
    assert member_kid(sealed(ring=ring)) == "next"
    assert exported_jwk(ring, "t", "2026a") == exported_jwk(RING, "t")


def test_a_message_id_is_the_same_as_text_and_as_uuid():
    place = {**PLACE, "message_id": UUID(str(PLACE["message_id"]))}
    assert open_member(sealed(), keyring=RING, **{**place, "message_id": str(place["message_id"])})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (wrap(sealed()), True),
        ({"$jwe": "a.b.c.d.e"}, True),
        ({"$jwe": "text"}, False),
        ({"$jwe": None}, False),
        ({"$jwe": "a.b.c.d.e", "more": 1}, False),
        ({}, False),
        (["$jwe"], False),
        ("eyJ", False),
        (None, False),
    ],
)
def test_what_has_the_form_of_a_wrapper(value: object, expected: bool):
    assert is_wrapper(value) is expected
