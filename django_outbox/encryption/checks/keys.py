"""Checks of the settings, of the keyrings, and of the keys against their fingerprints."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.db import DatabaseError

from django_outbox.encryption import conf, fingerprints
from django_outbox.encryption.exceptions import EncryptionError, KeyringError
from django_outbox.encryption.keyrings import Keyring
from django_outbox.encryption.providers import FileKeys
from django_outbox.encryption.registry import blind_indexes, encrypted_fields

#: What is wrong with a ring, by the cause of its ``KeyringError``.
_IDS = {
    "form": "E002",
    "length": "E003",
    "same-kid": "E004",
    "same-key": "E005",
    "shared": "E006",
    "weak": "E007",
    "secret-key": "E008",
    "no-primary": "E009",
    "primaries": "E010",
    "unreachable": "E011",
}
_GENERATE = "Make one with: manage.py outbox_keys generate"


def check_keyrings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """The settings and the rings that can be looked at without a network."""
    problems = conf.settings_problems()
    if problems:
        return [wrong_setting(problem, hint) for problem, hint in problems]
    found: list[CheckMessage] = []
    rings: list[Keyring] = []
    for name, provider in conf.encryption_settings().providers.items():
        if isinstance(provider, FileKeys):
            found += _check_file(provider)
        if provider.local:
            found += _check_ring(name, rings)
    found += _check_present()
    found += [
        plaintext_allowed(context) for context in sorted(conf.encryption_settings().allow_plaintext)
    ]
    return found


def check_fingerprints(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Every ring, far ones too, against what the databases know of its keys.

    Runs only where databases are named: ``check --database default``, ``migrate``.
    """
    if not databases or conf.settings_problems():
        return []
    found: list[CheckMessage] = []
    for name, provider in conf.encryption_settings().providers.items():
        rings: list[Keyring] = []
        messages = _check_ring(name, rings)
        if not provider.local:
            found += messages
        for ring in rings:
            for alias in databases:
                found += _compare(ring, alias)
    return found


def _check_ring(name: str, rings: list[Keyring]) -> list[CheckMessage]:
    try:
        ring = conf.load_keyring(name)
        conf.refuse_shared_keys(ring, rings)
    except KeyringError as error:
        return [wrong_keyring(error)] if error.cause != "empty" else [empty_keyring(name, error)]
    except EncryptionError as error:
        return [wrong_setting(str(error), "See docs/reference/encryption.md.")]
    rings.append(ring)
    return []


def _check_present() -> list[CheckMessage]:
    providers = conf.encryption_settings().providers
    needed = []
    if any(True for _ in encrypted_fields(apps.get_models())):
        needed.append(conf.DEFAULT)
    if any(True for _ in blind_indexes(apps.get_models())):
        needed.append(conf.INDEX)
    return [missing_keyring(name) for name in needed if name not in providers]


def _check_file(provider: FileKeys) -> list[CheckMessage]:
    try:
        mode = provider.path.stat().st_mode
    except OSError:
        return []  # Loading the ring reports it.
    return [readable_file(provider)] if mode & (stat.S_IROTH | stat.S_IWOTH) else []


def _compare(ring: Keyring, alias: str) -> list[CheckMessage]:
    try:
        known = fingerprints.known_fingerprints(alias)
    except DatabaseError:
        return []  # Not migrated yet: nothing is known, and nothing is sealed.
    wrong = (
        fingerprints.compare(known[ring.name, key.kid], key, ring)
        for key in ring
        if (ring.name, key.kid) in known
    )
    return [wrong_key(error, alias) for error in wrong if error is not None]


def wrong_setting(problem: str, hint: str) -> Error:
    return Error(problem, hint=hint, id="django_outbox_encryption.E001")


def wrong_keyring(error: KeyringError) -> Error:
    return Error(
        f"Keyring {error}",
        hint=f"{_GENERATE}. The ring was not put in force.",
        id=f"django_outbox_encryption.{_IDS[error.cause]}",
    )


def wrong_key(error: EncryptionError, alias: str) -> Error:
    return Error(
        f"Keyring {error}",
        hint=f"Nothing is written on database {alias!r} under this key until that is put right.",
        id="django_outbox_encryption.E012",
    )


def missing_keyring(name: str) -> checks.Warning:
    return checks.Warning(
        f'OUTBOX_ENCRYPTION["KEYRINGS"]["{name}"] is not set, but models need it.',
        hint=f"{_GENERATE}. Without it nothing can be sealed, opened or looked up.",
        id="django_outbox_encryption.W001",
    )


def empty_keyring(name: str, error: KeyringError) -> checks.Warning:
    return checks.Warning(
        f"Keyring {error}",
        hint="That is right where an image is built; where values are read or written it is not.",
        id="django_outbox_encryption.W002",
    )


def readable_file(provider: FileKeys) -> checks.Warning:
    return checks.Warning(
        f"{provider.path} holds keys, and everybody on this machine may open it.",
        hint=f"chmod 600 {provider.path}",
        id="django_outbox_encryption.W003",
    )


def plaintext_allowed(context: str) -> checks.Warning:
    return checks.Warning(
        f'{context} may still hold clear values (OUTBOX_ENCRYPTION["ALLOW_PLAINTEXT"]).',
        hint="Finish with outbox_reencrypt, then take the field out of the list.",
        id="django_outbox_encryption.W004",
    )
