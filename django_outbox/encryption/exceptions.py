"""What goes wrong with keys and sealed values: one class a cause.

No text here holds a value, a token or key material: it names the place (model field, row, message),
the key's id, and what to do.
"""

from __future__ import annotations


class EncryptionError(Exception):
    """The root of all errors of ``django_outbox.encryption``.

    ``place`` is what holds the value (``crm.customer.tax_id``), ``pk`` its row, ``kid`` the key it
    names; each is None where it is not known.
    """

    def __init__(
        self, reason: str, *, kid: str | None = None, place: str | None = None, pk: object = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kid = kid
        self.place = place
        self.pk = pk

    def __str__(self) -> str:
        where = [] if self.place is None else [self.place]
        if self.pk is not None:
            where.append(f"pk {self.pk}")
        if self.kid is not None:
            where.append(f"key {self.kid!r}")
        return f"{', '.join(where)}: {self.reason}" if where else self.reason

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.reason, self.kid, self.place, self.pk)


def _rebuilt(
    cls: type[EncryptionError], reason: str, kid: str | None, place: str | None, pk: object
) -> EncryptionError:
    return cls(reason, kid=kid, place=place, pk=pk)


class EncryptionSettingsError(EncryptionError):
    """``OUTBOX_ENCRYPTION`` is wrong. Nothing was read or written."""


class KeyringError(EncryptionError):
    """A keyring cannot be used as it is. Nothing was read or written.

    ``cause`` is one word a program can look at: see ``Keyring`` and ``parse_keyring``.
    """

    def __init__(
        self,
        reason: str,
        *,
        cause: str = "form",
        kid: str | None = None,
        place: str | None = None,
        pk: object = None,
    ) -> None:
        super().__init__(reason, kid=kid, place=place, pk=pk)
        self.cause = cause


class WrongKey(EncryptionError):
    """This key is not the one that was known under its id before. Nothing was written."""


class UnknownKey(EncryptionError):
    """The value was sealed under a key that is not in the keyring. The value is intact."""


class KeyDisabled(EncryptionError):
    """The value's key is in the keyring, but switched off. The value is intact."""


class KeyDestroyed(EncryptionError):
    """The value's key has been destroyed: nobody can read the value any more."""


class DecryptionFailed(EncryptionError):
    """The value is damaged, or was sealed for another place. Nothing was changed."""


class PlaintextFound(EncryptionError):
    """A clear value where only sealed ones belong. Nothing was changed.

    ``OUTBOX_ENCRYPTION["ALLOW_PLAINTEXT"]`` lets a column hold both while it is being sealed.
    """


class StillInUse(EncryptionError):
    """The key cannot be destroyed: rows are sealed under it. Re-encrypt them first."""
