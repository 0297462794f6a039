"""The vectors, computed from the format's text by a script that shares no code with this package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from django_outbox.encryption import jwe
from django_outbox.encryption.aead import open_stored, seal
from django_outbox.encryption.derivation import blind_tag, derive, fingerprint, pae
from django_outbox.encryption.keyrings import Key, Keyring
from django_outbox.encryption.normalisers import normalise

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "crypto.json").read_text("utf-8")
)
ROOT = bytes.fromhex(VECTORS["root_key_hex"])
INDEX_ROOT = bytes.fromhex(VECTORS["index_root_key_hex"])
NONCE = bytes.fromhex(VECTORS["nonce_hex"])
RING = Keyring.of("default", [Key.of(VECTORS["kid"], ROOT)])
FIELD, MEMBER, INDEX = VECTORS["field"], VECTORS["member"], VECTORS["blind_index"]
TAG = INDEX["cases"][0]["tag"]


def test_the_fingerprint_of_a_root_key():
    assert fingerprint(ROOT) == VECTORS["fingerprint"]["value"]


def test_parts_become_one_unambiguous_byte_string():
    assert pae(*VECTORS["pae"]["parts"]).hex() == VECTORS["pae"]["hex"]


def test_the_key_of_a_field():
    assert derive(ROOT, "field", FIELD["context"]).hex() == FIELD["key_hex"]


def test_the_token_of_a_field():
    sealed = seal(FIELD["plaintext"].encode(), RING.primary, FIELD["context"], nonce=NONCE)
    assert sealed == FIELD["token"]
    assert open_stored(FIELD["token"], RING, FIELD["context"]) == FIELD["plaintext"].encode()


def test_the_stored_form_of_an_indexed_field():
    sealed = seal(FIELD["plaintext"].encode(), RING.primary, FIELD["context"], TAG, nonce=NONCE)
    assert sealed == FIELD["indexed_stored"]
    opened = open_stored(FIELD["indexed_stored"], RING, FIELD["context"])
    assert opened == FIELD["plaintext"].encode()


def test_the_key_of_a_blind_index():
    key = derive(INDEX_ROOT, "bidx", INDEX["context"], INDEX["index"])
    assert key.hex() == INDEX["key_hex"]


@pytest.mark.parametrize("case", INDEX["cases"], ids=lambda case: str(case["normalised"]))
def test_the_tag_of_a_value(case: dict[str, Any]):
    normalised = normalise(case["input"], case["normalisers"])
    assert normalised == case["normalised"]
    tag = blind_tag(INDEX_ROOT, INDEX["context"], normalised, INDEX["index"])
    assert f"{VECTORS['index_kid']}:{tag}" == case["tag"]


def test_a_sealed_member():
    place = {name: MEMBER[name] for name in ("topic", "message_id", "pointer")}
    sealed = jwe.seal_member(
        MEMBER["plaintext_json"],
        keyring=RING,
        content_key=bytes.fromhex(MEMBER["cek_hex"]),
        nonce=NONCE,
        **place,
    )
    assert sealed == MEMBER["jwe"]
    assert jwe.open_member(MEMBER["jwe"], keyring=RING, **place) == MEMBER["plaintext_json"]


def test_the_exported_key_of_a_topic():
    assert jwe.exported_jwk(RING, MEMBER["topic"]) == MEMBER["jwk"]
