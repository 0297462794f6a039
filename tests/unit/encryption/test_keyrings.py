"""Keyrings: their short form, their states, and the keys that are refused."""

from __future__ import annotations

import base64
import hashlib
import os
import pickle

import pytest

from django_outbox.encryption.exceptions import (
    KeyDestroyed,
    KeyDisabled,
    KeyringError,
    UnknownKey,
    WrongKey,
)
from django_outbox.encryption.keyrings import (
    Key,
    Keyring,
    KeyState,
    entry_of,
    parse_keyring,
    weakness,
)

#: The same in every process: they are part of test ids.
SECRETS = [hashlib.sha256(b"test key %d" % number).digest() for number in range(4)]


def text(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


def test_the_short_form_lists_ids_states_and_keys():
    ring = parse_keyring(
        f"""
        # the newest first
        2026b:primary:{text(SECRETS[0])},
        2026a:retired:{base64.urlsafe_b64encode(SECRETS[1]).decode().rstrip("=")}
        2025:disabled:{text(SECRETS[2])}  2024:destroyed:{"0a" * 8}
        """
    )
    assert [(key.kid, key.state) for key in ring] == [
        ("2026b", KeyState.PRIMARY),
        ("2026a", KeyState.RETIRED),
        ("2025", KeyState.DISABLED),
        ("2024", KeyState.DESTROYED),
    ]
    assert ring.primary.secret == SECRETS[0]
    assert [key.kid for key in ring.active] == ["2026b", "2026a"]
    assert ring.opening("2026a").secret == SECRETS[1]


def test_every_key_can_be_written_in_the_short_form_and_read_again():
    ring = parse_keyring(f"a:primary:{text(SECRETS[0])},b:destroyed:{'0b' * 8}")
    assert list(parse_keyring("\n".join(entry_of(key) for key in ring))) == list(ring)


@pytest.mark.parametrize(
    ("kid", "error"), [("gone", KeyDestroyed), ("off", KeyDisabled), ("never", UnknownKey)]
)
def test_a_key_that_may_not_open_says_why(kid: str, error: type[Exception]):
    ring = parse_keyring(
        f"a:primary:{text(SECRETS[0])},off:disabled:{text(SECRETS[1])},gone:destroyed:{'0a' * 8}"
    )
    with pytest.raises(error, match=kid):
        ring.opening(kid)


@pytest.mark.parametrize(
    ("form", "cause"),
    [
        ("", "empty"),
        ("# nothing\n", "empty"),
        (text(SECRETS[0]), "form"),
        (f"a:{text(SECRETS[0])}", "form"),
        (f"a:main:{text(SECRETS[0])}", "form"),
        ("a:primary:not+base64!", "form"),
        ("a:destroyed:short", "form"),
        (f"a b:primary:{text(SECRETS[0])}", "form"),
        (f"{'k' * 33}:primary:{text(SECRETS[0])}", "form"),
        (f"ü:primary:{text(SECRETS[0])}", "form"),
        (f"a:primary:{text(SECRETS[0][:16])}", "length"),
        (f"a:primary:{SECRETS[0].hex()}", "length"),
        (f"a:retired:{text(SECRETS[0])}", "no-primary"),
        (f"a:primary:{text(SECRETS[0])},b:primary:{text(SECRETS[1])}", "primaries"),
        (f"a:primary:{text(SECRETS[0])},A:retired:{text(SECRETS[1])}", "same-kid"),
        (f"a:primary:{text(SECRETS[0])},b:retired:{text(SECRETS[0])}", "same-key"),
    ],
)
def test_a_ring_that_cannot_work_is_refused_without_showing_a_key(form: str, cause: str):
    with pytest.raises(KeyringError) as caught:
        parse_keyring(form, "index")
    assert caught.value.cause == cause
    assert caught.value.place == "index"
    for secret in SECRETS:
        assert text(secret)[:20] not in str(caught.value)


@pytest.mark.parametrize(
    "secret",
    [
        bytes(32),
        b"\xff" * 32,
        bytes(range(32)),
        bytes(range(32, 64)),
        bytes(range(64, 32, -1)),
        b"changeme-changeme-changeme-chang",
        b"correct horse battery staple 123",
        b"ab" * 16,
    ],
)
def test_samples_and_passphrases_are_no_keys(secret: bytes):
    assert len(secret) == 32
    assert weakness(secret)


@pytest.mark.parametrize("make", ["sha256", "base64", "raw"])
def test_a_key_made_of_secret_key_is_no_key(make: str):
    random = os.urandom(32)
    setting, secret = {
        "sha256": ("django-insecure-x", hashlib.sha256(b"django-insecure-x").digest()),
        "base64": (text(random), random),
        "raw": ("ünicode-secret-key-of-some-length-é"[:40], None),
    }[make]
    secret = setting.encode()[:32] if secret is None else secret
    assert "SECRET_KEY" in (weakness(secret, [setting]) or "")


def test_random_keys_are_keys():
    assert not any(weakness(os.urandom(32), ["django-insecure-x"]) for _ in range(2000))


def test_neither_keys_nor_rings_show_a_secret():
    ring = Keyring.of("default", [Key.of("a", SECRETS[0])])
    shown = repr(ring) + repr(ring.primary) + str(ring) + str(ring.primary)
    assert text(SECRETS[0]) not in shown
    assert repr(SECRETS[0]) not in shown
    assert "secret" not in shown


def test_errors_keep_their_place_through_a_pickle():
    error = pickle.loads(
        pickle.dumps(WrongKey("is another.", kid="a", place="crm.customer.tax_id", pk=7))
    )
    assert isinstance(error, WrongKey)
    assert str(error) == "crm.customer.tax_id, pk 7, key 'a': is another."
