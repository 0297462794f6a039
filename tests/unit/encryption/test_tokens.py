"""Tokens: one spelling, one place, one key."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.encryption import tokens
from django_outbox.encryption.aead import forget_ciphers, open_stored, seal
from django_outbox.encryption.derivation import forget_derived_keys, pae
from django_outbox.encryption.exceptions import DecryptionFailed, UnknownKey
from django_outbox.encryption.keyrings import Key, Keyring, KeyState

KEY = Key.of("2026a", os.urandom(32))
RING = Keyring.of("default", [KEY, Key.of("old", os.urandom(32), KeyState.RETIRED)])
CONTEXT = "crm.customer.tax_id"
TAG = f"i1:{'0a' * 16}"


@given(st.binary(max_size=200), st.sampled_from([None, TAG]))
def test_what_is_sealed_opens(plaintext: bytes, tag: str | None):
    assert open_stored(seal(plaintext, KEY, CONTEXT, tag), RING, CONTEXT) == plaintext


@given(st.binary(max_size=100))
def test_base64url_has_one_spelling(raw: bytes):
    encoded = tokens.encode_bytes(raw)
    assert tokens.decode_bytes(encoded) == raw
    for wrong in (encoded + "=", encoded + "A", encoded + "\n", " " + encoded, encoded + "é"):
        try:
            assert tokens.decode_bytes(wrong) != raw
        except ValueError:
            continue


@given(st.lists(st.binary(max_size=9), max_size=4), st.lists(st.binary(max_size=9), max_size=4))
def test_different_parts_never_make_the_same_bytes(left: list[bytes], right: list[bytes]):
    assert (pae(*left) == pae(*right)) == (left == right)


def test_equal_values_have_different_tokens():
    assert len({seal(b"same", KEY, CONTEXT) for _ in range(1000)}) == 1000


@pytest.mark.parametrize("tag", [None, TAG])
def test_no_character_of_a_stored_value_can_be_changed(tag: str | None):
    stored = seal(b"12345678901", KEY, CONTEXT, tag)
    for position, character in enumerate(stored):
        other = "b" if character != "b" else "c"
        with pytest.raises((DecryptionFailed, UnknownKey)):
            open_stored(stored[:position] + other + stored[position + 1 :], RING, CONTEXT)
        with pytest.raises((DecryptionFailed, UnknownKey)):
            open_stored(stored[:position] + stored[position + 1 :], RING, CONTEXT)


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "ob1",
        "ob1.g.2026a.",
        "ob1.g.2026a.AAAA",
        "ob1.h.2026a.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "ob2.g.2026a.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "i1:0a|ob1.g.2026a.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "clear text",
    ],
)
def test_what_is_no_token_does_not_open(stored: str):
    with pytest.raises(DecryptionFailed):
        open_stored(stored, RING, CONTEXT)


def test_a_value_opens_in_its_own_context_only():
    with pytest.raises(DecryptionFailed):
        open_stored(seal(b"1", KEY, CONTEXT), RING, "crm.customer.passport")


def test_a_value_opens_under_its_own_key_only():
    other = Key.of("2026a", os.urandom(32))
    with pytest.raises(DecryptionFailed):
        open_stored(seal(b"1", other, CONTEXT), RING, CONTEXT)


def test_a_tag_cannot_be_put_on_taken_off_or_exchanged():
    tagged, bare = seal(b"1", KEY, CONTEXT, TAG), seal(b"1", KEY, CONTEXT)
    for stored in (
        tagged.partition("|")[2],
        f"{TAG}|{bare}",
        f"i1:{'0b' * 16}|{tagged.partition('|')[2]}",
        f"i2:{'0a' * 16}|{tagged.partition('|')[2]}",
    ):
        with pytest.raises(DecryptionFailed):
            open_stored(stored, RING, CONTEXT)


def test_a_megabyte_is_sealed_and_opened():
    plaintext = os.urandom(1024 * 1024)
    assert open_stored(seal(plaintext, KEY, CONTEXT), RING, CONTEXT) == plaintext


def test_many_threads_share_ciphers_while_the_caches_are_dropped():
    def work(number: int) -> bool:
        for turn in range(200):
            if number == 0:
                forget_ciphers()
                forget_derived_keys()
            plaintext = f"{number} {turn}".encode()
            if (
                open_stored(
                    seal(plaintext, KEY, f"{CONTEXT}{turn % 3}"), RING, f"{CONTEXT}{turn % 3}"
                )
                != plaintext
            ):
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(8)))
