"""The settings of encryption and the keyrings in force.

Nothing is read at import: the settings at first use, each keyring when it is first needed. Both are
read again after Django's ``setting_changed``, and the rings at ``reload_keyrings()``.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_outbox.encryption.aead import forget_ciphers
from django_outbox.encryption.derivation import forget_derived_keys
from django_outbox.encryption.exceptions import EncryptionSettingsError, KeyringError
from django_outbox.encryption.keyrings import Keyring, KeyState, weakness
from django_outbox.encryption.providers import KeyProvider, SettingsKeys, load_ring

#: The ring that seals values, and the ring that makes blind-index tags.
DEFAULT, INDEX = "default", "index"
RINGS = (DEFAULT, INDEX)
_KEYS = ("KEYRINGS", "ON_ERROR", "ALLOW_PLAINTEXT")


@dataclass(frozen=True, slots=True)
class EncryptionSettings:
    """``settings.OUTBOX_ENCRYPTION`` with its defaults filled in. See docs/reference/encryption.md."""

    providers: Mapping[str, KeyProvider] = field(default_factory=dict, repr=False)
    on_error: Literal["raise", "sentinel"] = "raise"
    #: Contexts (``crm.customer.tax_id``) whose columns may still hold clear values.
    allow_plaintext: frozenset[str] = frozenset()


def encryption_settings() -> EncryptionSettings:
    """The settings in force. Raises ``EncryptionSettingsError`` naming every key that is wrong."""
    parsed, problems = _read()
    if problems:
        raise EncryptionSettingsError("\n".join(problem for problem, _ in problems))
    return parsed


def settings_problems() -> list[tuple[str, str]]:
    """All that is wrong with ``settings.OUTBOX_ENCRYPTION``, as (problem, hint)."""
    return list(_read()[1])


def keyring(name: str = DEFAULT) -> Keyring:
    """The ring in force, loaded at its first use. Raises ``KeyringError`` when it cannot be used."""
    ring = _rings.get(name)
    return ring if ring is not None else _load(name)


def load_keyring(name: str) -> Keyring:
    """Load a ring anew and look at its keys, without putting it in force."""
    provider = encryption_settings().providers.get(name)
    if provider is None:
        raise KeyringError(
            f'is not configured. Set OUTBOX_ENCRYPTION["KEYRINGS"]["{name}"]; make a key with:'
            " manage.py outbox_keys generate",
            cause="empty",
            place=name,
        )
    ring = load_ring(provider, name)
    _refuse_weak_keys(ring)
    return ring


def reload_keyrings() -> None:
    """Load every ring in use again and put them in force together.

    When one of them cannot be loaded its error is raised and the old rings stay in force.
    """
    with _lock:
        fresh = {name: load_keyring(name) for name in _rings}
        for ring in fresh.values():
            refuse_shared_keys(ring, fresh.values())
        _rings.update(fresh)
        _forget_keys()


_rings: dict[str, Keyring] = {}
_lock = threading.RLock()
#: Called whenever other rings are in force; see ``fingerprints``.
on_change: list[Callable[[], None]] = []


def _load(name: str) -> Keyring:
    # Under the lock, so that a service behind a provider is asked once, whatever the threads.
    with _lock:
        if name not in _rings:
            ring = load_keyring(name)
            refuse_shared_keys(ring, _rings.values())
            _rings[name] = ring
        return _rings[name]


def _forget_keys() -> None:
    forget_ciphers()
    forget_derived_keys()
    for forget in on_change:
        forget()


def _refuse_weak_keys(ring: Keyring) -> None:
    __traceback_hide__ = True
    secret_keys = [
        text
        for text in (django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS)
        if isinstance(text, str) and text
    ]
    for key in ring:
        if key.state is KeyState.DESTROYED:
            continue
        reason = weakness(key.secret, secret_keys)
        if reason is not None:
            cause = "secret-key" if "SECRET_KEY" in reason else "weak"
            raise KeyringError(
                f"{reason}. Make a key with: manage.py outbox_keys generate",
                cause=cause,
                kid=key.kid,
                place=ring.name,
            )


def refuse_shared_keys(ring: Keyring, others: Collection[Keyring]) -> None:
    for other in others:
        if other.name == ring.name:
            continue
        shared = {key.fingerprint for key in ring} & {key.fingerprint for key in other}
        if shared:
            kid = next(key.kid for key in ring if key.fingerprint in shared)
            raise KeyringError(
                f"is in the keyring {other.name!r} too. Index keys and sealing keys are kept apart.",
                cause="shared",
                kid=kid,
                place=ring.name,
            )


@lru_cache(maxsize=1)
def _read() -> tuple[EncryptionSettings, tuple[tuple[str, str], ...]]:
    raw = getattr(django_settings, "OUTBOX_ENCRYPTION", {})
    problems: list[tuple[str, str]] = []
    if not isinstance(raw, Mapping):
        problem = f"OUTBOX_ENCRYPTION must be a dict, not {type(raw).__name__}."
        return EncryptionSettings(), ((problem, 'OUTBOX_ENCRYPTION = {"KEYRINGS": {…}}'),)
    problems += [_unknown("OUTBOX_ENCRYPTION", key, _KEYS) for key in raw if key not in _KEYS]
    parsed = EncryptionSettings(
        providers=_providers(raw.get("KEYRINGS", {}), problems),
        on_error=_on_error(raw.get("ON_ERROR", "raise"), problems),
        allow_plaintext=_contexts(raw.get("ALLOW_PLAINTEXT", ()), problems),
    )
    return parsed, tuple(problems)


def _providers(raw: Any, problems: list[tuple[str, str]]) -> dict[str, KeyProvider]:
    if not isinstance(raw, Mapping):
        problems.append(
            ('OUTBOX_ENCRYPTION["KEYRINGS"] must be a dict.', f"Its keys: {', '.join(RINGS)}.")
        )
        return {}
    made: dict[str, KeyProvider] = {}
    for name, entry in raw.items():
        where = f'OUTBOX_ENCRYPTION["KEYRINGS"][{name!r}]'
        if name not in RINGS:
            problems.append(_unknown('OUTBOX_ENCRYPTION["KEYRINGS"]', name, RINGS))
        elif isinstance(entry, Mapping) and "BACKEND" in entry:
            provider = _backend(entry, where, problems)
            if provider is not None:
                made[name] = provider
        elif isinstance(entry, (str, Mapping)):
            made[name] = SettingsKeys(entry)
        elif entry is not None:
            problems.append(
                (
                    f"{where} must be a string or a dict, not {type(entry).__name__}.",
                    "A string of kid:state:key entries, a dict of states, or a dict with a BACKEND.",
                )
            )
    return made


def _backend(
    entry: Mapping[str, Any], where: str, problems: list[tuple[str, str]]
) -> KeyProvider | None:
    options = {str(key).lower(): value for key, value in entry.items() if key != "BACKEND"}
    try:
        provider: KeyProvider = import_string(entry["BACKEND"])(**options)
    except (ImportError, TypeError, AttributeError) as error:
        # The text of a TypeError names arguments, not their values.
        problems.append((f"{where}: {error}.", "BACKEND is the path of a key provider's class."))
        return None
    return provider


def _on_error(raw: Any, problems: list[tuple[str, str]]) -> Literal["raise", "sentinel"]:
    if raw == "sentinel":
        return "sentinel"
    if raw != "raise":
        problems.append(
            (
                'OUTBOX_ENCRYPTION["ON_ERROR"] must be "raise" or "sentinel".',
                '"raise" is the default; "sentinel" shows a mask in place of an unreadable value.',
            )
        )
    return "raise"


def _contexts(raw: Any, problems: list[tuple[str, str]]) -> frozenset[str]:
    if isinstance(raw, str) or not isinstance(raw, Collection):
        problems.append(
            (
                'OUTBOX_ENCRYPTION["ALLOW_PLAINTEXT"] must be a list of fields.',
                'For example ["crm.customer.tax_id"].',
            )
        )
        return frozenset()
    return frozenset(str(context).lower() for context in raw)


def _unknown(container: str, key: object, known: Collection[str]) -> tuple[str, str]:
    close = difflib.get_close_matches(str(key), known, n=1)
    guess = f" Did you mean {close[0]!r}?" if close else ""
    return f"{container}[{key!r}] is not a setting.{guess}", f"Known keys: {', '.join(known)}."


def _reset(*, setting: str, **kwargs: Any) -> None:
    if setting in {"OUTBOX_ENCRYPTION", "SECRET_KEY"}:
        with _lock:
            _read.cache_clear()
            _rings.clear()
            _forget_keys()


setting_changed.connect(_reset, dispatch_uid="django_outbox.encryption.conf")
