"""Keys and raw columns for the tests of encryption."""

from __future__ import annotations

import base64
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.models import Model

from django_outbox.databases import Database
from django_outbox.encryption.keyrings import Key, KeyState, entry_of

#: Random keys of this session, by id.
SECRETS: dict[str, bytes] = {}


def entry(kid: str, state: str = "primary") -> str:
    """One entry of a keyring's short form; the same id has the same key all session."""
    key = Key.of(kid, SECRETS.setdefault(kid, os.urandom(32)), KeyState.PRIMARY)
    if state == "destroyed":
        return entry_of(Key.destroyed(kid, key.fingerprint))
    return entry_of(Key(kid, KeyState(state), key.secret, key.fingerprint))


def wrong_entry(kid: str, state: str = "primary") -> str:
    """The id with another key under it."""
    return f"{kid}:{state}:{base64.b64encode(os.urandom(32)).decode()}"


@pytest.fixture
def rings(settings: Any) -> Callable[..., None]:
    """Put keyrings in force: ``rings(default=[entry("b"), entry("a", "retired")], index=[…])``."""

    def put(
        default: list[str] | None = None, index: list[str] | None = None, **options: Any
    ) -> None:
        settings.OUTBOX_ENCRYPTION = {
            "KEYRINGS": {
                "default": " ".join(default or [entry("a")]),
                "index": " ".join(index or [entry("i1")]),
            },
            **options,
        }

    put()
    return put


@pytest.fixture(autouse=True)
def fresh_rings(rings: Callable[..., None]) -> None:
    """Every test here begins with one key in each ring, none of them verified before."""


@pytest.fixture
def closed_cursors(database: Database) -> Iterator[None]:
    """Let go of cursors that an error left half read while their connection is still open."""
    yield
    gc.collect()


def stored(instance: Model, name: str) -> str | None:
    """What stands in the instance's column, not opened."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {connection.ops.quote_name(name)} FROM {instance._meta.db_table} WHERE id = %s",
            [instance.pk],
        )
        value: str | None = cursor.fetchone()[0]
    return value


def put_stored(instance: Model, name: str, value: str | None) -> None:
    """Write a column behind the field's back."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {instance._meta.db_table} SET {connection.ops.quote_name(name)} = %s"
            " WHERE id = %s",
            [value, instance.pk],
        )
