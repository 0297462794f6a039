"""Stored values that are carried through unopened: unreadable ones, and those of dumps.

``Undecryptable`` stands where a value could not be opened (``ON_ERROR="sentinel"``) and saves back
unchanged. Inside ``stored_values()`` every encrypted field reads and takes its stored form, so that
dumps hold tokens and need no key to be made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django_outbox.encryption.masking import MASK


class StoredValue:
    """What stands in the column, for one context. Shows a mask."""

    __slots__ = ("context", "raw")

    def __init__(self, raw: str, context: str) -> None:
        self.raw = raw
        self.context = context

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.context}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StoredValue)
            and type(other) is type(self)
            and (other.raw, other.context) == (self.raw, self.context)
        )

    def __hash__(self) -> int:
        return hash((self.raw, self.context))


class Undecryptable(StoredValue):
    """A value that could not be opened; ``reason`` says why, without the value.

    Assigned to the same field, of this row or another, it writes back what was stored.
    """

    __slots__ = ("reason",)

    def __init__(self, raw: str, context: str, reason: str) -> None:
        super().__init__(raw, context)
        self.reason = reason


_carrying: ContextVar[bool] = ContextVar("django_outbox_encryption_stored", default=False)
#: Whether encrypted fields read and take their stored form here.
carries_stored = _carrying.get


@contextmanager
def stored_values() -> Iterator[None]:
    """Read and take encrypted fields in their stored form, unopened, inside the block.

    What is read is a ``StoredValue``, serialised as its token. Text that a deserialiser hands to an
    encrypted field is taken for a token when it begins as one, and is then written as it is, once it
    has been opened to prove that it belongs there; other text is a clear value and gets sealed.
    """
    token = _carrying.set(True)
    try:
        yield
    finally:
        _carrying.reset(token)
