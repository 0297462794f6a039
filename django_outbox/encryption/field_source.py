"""A model's encrypted column as a source of sealed values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, OperationalError, transaction
from django.db.models import (
    BooleanField,
    Case,
    Count,
    ExpressionWrapper,
    F,
    Func,
    Q,
    TextField,
    Value,
    When,
)
from django.db.models.functions import StrIndex, Substr
from django.db.models.lookups import Exact, GreaterThan

from django_outbox.encryption import tokens
from django_outbox.encryption.aead import open_stored, seal
from django_outbox.encryption.conf import INDEX, encryption_settings, keyring
from django_outbox.encryption.exceptions import EncryptionError, PlaintextFound
from django_outbox.encryption.fields import EncryptedField
from django_outbox.encryption.fingerprints import verify_for_writing
from django_outbox.encryption.keyrings import KID_LENGTH
from django_outbox.encryption.rotation import Census, Failure, Step, Task, databases_with
from django_outbox.encryption.stored import StoredValue, stored_values

#: How often a batch is tried that a deadlock or a lock timeout ended.
_TRIES = 6


@dataclass(frozen=True, slots=True)
class _Change:
    """One value before and after."""

    pk: Any
    old: str
    new: str


class FieldSource:
    """One encrypted field. Batches go by primary key; a write compares with what was read."""

    def __init__(self, field: EncryptedField) -> None:
        self.field = field
        self.name = f"{field.model._meta.label_lower}.{field.name}"

    def databases(self) -> Iterable[str]:
        """Where the model's table is."""
        return databases_with(self.field.model)

    def census(self, using: str) -> Census:
        """Count by the ids that the stored texts begin with. Opens nothing."""
        rows = self._rows(using).annotate(
            outbox_kid=_kid(self._stored), outbox_index_kid=_index_kid(self._stored)
        )
        kids: Counter[str] = Counter()
        index_kids: Counter[str] = Counter()
        untagged = 0
        counted = rows.values_list("outbox_kid", "outbox_index_kid").annotate(n=Count("pk"))
        for kid, index_kid, count in counted.order_by():
            kids[kid] += count
            if index_kid:
                index_kids[index_kid] += count
            elif kid and self.field.blind_index is not None:
                untagged += count
        keyless = kids.pop("", 0)
        return Census(dict(kids), dict(index_kids), keyless, untagged)

    def remaining(self, task: Task) -> int:
        """Count the rows that are not under the primary key (and index key)."""
        left: int = self._outdated(task).count()
        return left

    def step(self, task: Task, after: Any) -> Step:
        """Seal the next batch anew; see ``rotation``."""
        rows = self._outdated(task).order_by("pk")
        if after is not None:
            rows = rows.filter(pk__gt=after)
        with stored_values():
            batch = list(rows.values_list("pk", self.field.name)[: task.limit])
        changes: list[_Change] = []
        failures: list[Failure] = []
        for pk, stored in batch:
            try:
                changes.append(_Change(pk, stored.raw, self._sealed_anew(stored.raw, task)))
            except (EncryptionError, ValidationError, ValueError, TypeError) as error:
                failures.append(Failure(pk, _reason(error)))
        changed, raced = len(changes), 0
        if not task.dry_run:
            raced, refused = self._write(changes, task)
            changed -= raced + len(refused)
            failures += refused
        end = batch[-1][0] if len(batch) == task.limit else None
        return Step(end, changed, raced, tuple(failures))

    # Reading.

    def _rows(self, using: str) -> Any:
        rows = self.field.model._base_manager.using(using)
        return rows.exclude(**{f"{self.field.name}__isnull": True})

    def _outdated(self, task: Task) -> Any:
        return self._rows(task.using).exclude(self._is_current(task))

    def _is_current(self, task: Task) -> Q:
        begins = tokens.header(keyring().primary.kid)
        current = Q(Exact(Substr(_token(self._stored), 1, len(begins)), Value(begins)))
        if not task.index:
            return current
        if self.field.blind_index is None:
            return current & Q(Exact(_bar(self._stored), Value(0)))
        return current & Q(Exact(_index_kid(self._stored), Value(keyring(INDEX).primary.kid)))

    @property
    def _stored(self) -> Any:
        """The column's text, not opened."""
        return ExpressionWrapper(F(self.field.name), output_field=TextField())

    # Writing.

    def _sealed_anew(self, raw: str, task: Task) -> str:
        __traceback_hide__ = True
        field, context = self.field, self.field.seal_context
        tag: str | None
        if tokens.looks_sealed(raw):
            plaintext = open_stored(raw, keyring(), context)
            tag = tokens.parse(raw).tag
            renew_tag = task.index
        else:
            plaintext = self._from_clear(raw)
            tag, renew_tag = None, True
        if renew_tag:
            index = field.blind_index
            tag = None if index is None else index.tag(plaintext.decode(), task.using)
        key = verify_for_writing(keyring(), task.using)
        return seal(plaintext, key, context, tag)

    def _from_clear(self, raw: str) -> bytes:
        if self.field.seal_context not in encryption_settings().allow_plaintext:
            raise PlaintextFound(
                'a clear value. Name the field in OUTBOX_ENCRYPTION["ALLOW_PLAINTEXT"] to seal it.'
            )
        return self.field.plaintext_of(self.field.from_clear(raw))

    def _write(self, changes: list[_Change], task: Task) -> tuple[int, list[Failure]]:
        each_apart = False
        for attempt in range(1, _TRIES + 1):
            try:
                with transaction.atomic(using=task.using):
                    return self._write_once(changes, task, each_apart=each_apart)
            except IntegrityError:
                # A tag collided. Savepoints find out whose; most batches do without their cost.
                if each_apart:
                    raise
                each_apart = True
            except OperationalError:
                # A deadlock or lock timeout took the whole batch back: nothing is half done.
                if attempt == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def _write_once(
        self, changes: list[_Change], task: Task, *, each_apart: bool
    ) -> tuple[int, list[Failure]]:
        raced = 0
        failures: list[Failure] = []
        for change in changes:
            try:
                with transaction.atomic(using=task.using) if each_apart else nullcontext():
                    raced += not self._write_one(change, task)
            except IntegrityError:
                if not each_apart:
                    raise
                failures.append(
                    Failure(change.pk, "another row has the same value, and it must be unique.")
                )
        return raced, failures

    def _write_one(self, change: _Change, task: Task) -> int:
        same = _SameBytes(self._stored, Value(change.old), output_field=BooleanField())
        row = self.field.model._base_manager.using(task.using).filter(same, pk=change.pk)
        # Saving a stored value opens it first: nothing is written that cannot be read.
        new = StoredValue(change.new, self.field.seal_context)
        written: int = row.update(**{self.field.name: new})
        return written


class _SameBytes(Func):
    """Whether two texts are the same byte for byte, whatever the column's collation."""

    template = "%(expressions)s"
    arg_joiner = " = "

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """BINARY: without it "ali", "ALI" and "ali " are one."""
        return self.as_sql(compiler, connection, template="BINARY %(expressions)s", **extra)


def _head(stored: Any) -> Any:
    return Substr(stored, 1, tokens.TAG_LENGTH + len(f"{tokens.BAR}{tokens.VERSION}."))


def _bar(stored: Any) -> Any:
    """Where the bar after a tag stands; 0 where there is none."""
    return StrIndex(_head(stored), Value(f"{tokens.BAR}{tokens.VERSION}."))


def _token(stored: Any) -> Any:
    """The beginning of the token, its tag left out: enough to hold the key's id."""
    return Substr(stored, _bar(stored) + Value(1), len(tokens.PREFIX) + KID_LENGTH + 1)


def _kid(stored: Any) -> Any:
    token = _token(stored)
    rest = Substr(token, len(tokens.PREFIX) + 1)
    dot = StrIndex(rest, Value("."))
    is_token = Exact(Substr(token, 1, len(tokens.PREFIX)), Value(tokens.PREFIX))
    return Case(
        When(Q(is_token) & Q(GreaterThan(dot, Value(1))), then=Substr(rest, 1, dot - Value(1))),
        default=Value(""),
    )


def _index_kid(stored: Any) -> Any:
    colon = StrIndex(_head(stored), Value(":"))
    has_tag = Q(GreaterThan(_bar(stored), Value(1))) & Q(GreaterThan(colon, Value(1)))
    return Case(When(has_tag, then=Substr(_head(stored), 1, colon - Value(1))), default=Value(""))


def _reason(error: Exception) -> str:
    if isinstance(error, EncryptionError):
        return str(error)
    return "a clear value that is none of the field's type."
