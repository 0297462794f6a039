"""Where keyrings come from: the settings, the environment, a file, or a service of yours.

A provider is asked once, at the first use of its ring, and again at ``reload_keyrings()``. One for a
KMS or Vault unwraps the whole ring in that one call; nothing else ever calls out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from django_outbox.encryption.exceptions import (
    EncryptionError,
    EncryptionSettingsError,
    KeyringError,
)
from django_outbox.encryption.keyrings import Key, Keyring, KeyState, key_from_text, parse_keyring


class KeyProvider(Protocol):
    """Hands out one keyring.

    Made from the options beside ``BACKEND`` in ``OUTBOX_ENCRYPTION["KEYRINGS"]``, as keyword
    arguments in lower case. ``load`` may be called from any thread, never from two at once for the
    same ring. It raises ``KeyringError`` when the keys it finds are no ring; any other exception is
    reported as the ring being out of reach.
    """

    #: Whether loading is cheap and needs no network: then the system checks look at the ring too.
    #: Others are looked at by ``check --database`` alone.
    local: bool

    def load(self, name: str) -> Keyring:
        """The ring of this name ("default" or "index")."""
        ...


class SettingsKeys:
    """Keys written in the settings, mostly read there from the environment.

    A string is the short form of ``parse_keyring``. A dict goes by states:
    ``{"primary": {"2026b": "…"}, "retired": {"2026a": "…"}, "destroyed": {"2024": "<fingerprint>"}}``.
    """

    local = True

    def __init__(self, keys: str | Mapping[str, Mapping[str, str]]) -> None:
        self._keys = keys

    def load(self, name: str) -> Keyring:
        """The ring as the settings have it."""
        if isinstance(self._keys, str):
            return parse_keyring(self._keys, name)
        return Keyring.of(name, list(self._by_state(name, self._keys)))

    @staticmethod
    def _by_state(name: str, keys: Mapping[str, Any]) -> list[Key]:
        if not keys:
            raise KeyringError("has no keys.", cause="empty", place=name)
        found: list[Key] = []
        for state, entries in keys.items():
            if state not in list(KeyState) or not isinstance(entries, Mapping):
                raise KeyringError(
                    f"must be a dict of the states {', '.join(KeyState)}, each a dict of ids and"
                    " keys.",
                    place=name,
                )
            for kid, text in entries.items():
                if not isinstance(kid, str) or not isinstance(text, str):
                    raise KeyringError("has an id or a key that is no string.", place=name)
                try:
                    found.append(key_from_text(kid, state, text))
                except KeyringError as error:
                    error.place = name
                    raise
        return found


class EnvironmentKeys:
    """Keys from an environment variable, in the short form of ``parse_keyring``."""

    local = True

    def __init__(self, variable: str) -> None:
        self._variable = variable

    def load(self, name: str) -> Keyring:
        """The ring in the variable. Raises ``KeyringError`` (empty) when it is not set."""
        text = os.environ.get(self._variable, "")
        if not text.strip():
            raise KeyringError(
                f"has no keys: the environment variable {self._variable} is not set.",
                cause="empty",
                place=name,
            )
        return parse_keyring(text, name)


class FileKeys:
    """Keys from a file, such as a mounted secret: entries of the short form, one a line."""

    local = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def load(self, name: str) -> Keyring:
        """The ring in the file. Raises ``KeyringError`` (empty, unreadable) and those of its form."""
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            raise KeyringError(
                f"has no keys: there is no file {self.path}.", cause="empty", place=name
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise KeyringError(
                f"cannot be read from {self.path} ({type(error).__name__}).",
                cause="unreachable",
                place=name,
            ) from None
        return parse_keyring(text, name)


def load_ring(provider: KeyProvider, name: str) -> Keyring:
    """Ask the provider. Raises ``KeyringError`` whatever goes wrong there; the cause is chained.

    Without the frames below: exception pages print their variables, and those hold keys.
    """
    try:
        ring = provider.load(name)
    except EncryptionError as error:
        raise error.with_traceback(None) from None
    except Exception as error:
        # Its text stays out of ours, which checks and logs repeat: it may hold what it was given.
        raise KeyringError(
            f"is out of reach: {type(provider).__name__} raised {type(error).__name__}.",
            cause="unreachable",
            place=name,
        ) from error.with_traceback(None)
    if not isinstance(ring, Keyring):
        raise EncryptionSettingsError(
            f"{type(provider).__name__}.load() must return a Keyring, not {type(ring).__name__}.",
            place=name,
        )
    return ring
