"""Responses to idempotent requests: reserve a key, store what was answered, answer it again.

The reservation is committed before the view runs, so that a second request sees it and is told to
wait. The response is stored in the view's transaction: there is one exactly where the effect is
committed, and a reservation whose lease has run out without one had no effect and is free again.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any
from uuid import UUID, uuid4

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.http import HttpResponse
from django.http.response import HttpResponseBase

from django_outbox.consumers.idempotency import RequestIdentity
from django_outbox.consumers.reservations import insert_if_missing, own_transaction
from django_outbox.databases import database_for
from django_outbox.databases.clock import DatabaseNow
from django_outbox.models import StoredResponse

REPLAYED = "Idempotent-Replayed"
#: What describes the answer itself. Cookies, and what middleware adds, are made anew each time.
KEPT_HEADERS = frozenset(
    {
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-location",
        "content-type",
        "etag",
        "last-modified",
        "link",
        "location",
        "retry-after",
    }
)
#: Headers that mean nothing without the body they describe.
_OF_THE_BODY = frozenset(
    {"content-disposition", "content-encoding", "content-language", "content-type", "etag"}
)
_REMEDY = (
    "Put @idempotent_request on the view itself, or on dispatch() of its class, and no"
    " transaction.atomic around it."
)


class Unavailable(Enum):
    """Why the view is not called, and nothing can be answered again."""

    IN_PROGRESS = auto()
    OTHER_REQUEST = auto()
    """The key was used before, for something else."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The right to handle one request, until the lease ends or somebody else has taken it."""

    alias: str
    key_digest: str
    token: UUID

    def store(self, response: HttpResponse, body: bytes | None, extra: Collection[str]) -> bool:
        """Store the response in the caller's transaction. False: the reservation was lost."""
        kept = KEPT_HEADERS.union(name.lower() for name in extra)
        if body is None:
            kept -= _OF_THE_BODY
        headers = {name: value for name, value in response.items() if name.lower() in kept}
        stored = self._ours().update(
            status_code=response.status_code,
            headers=headers,
            body=body,
            lease_token=None,
            lease_expires_at=None,
        )
        return bool(stored)

    def release(self) -> None:
        """Give the key back: the request may be made again."""
        self._ours().delete()

    def _ours(self) -> QuerySet[StoredResponse]:
        rows = StoredResponse.objects.using(self.alias)
        return rows.filter(key_digest=self.key_digest, lease_token=self.token)


def reserve(
    alias: str, identity: RequestIdentity, method: str, *, lease: timedelta, expires: timedelta
) -> Reservation | HttpResponse | Unavailable:
    """Reserve the key, in a transaction of its own, or find what was answered before.

    Raises ``InTransaction`` where it would not be its own.
    """
    reservation = Reservation(alias, identity.key_digest, uuid4())
    fresh: dict[str, Any] = {
        "fingerprint": identity.fingerprint,
        "method": method,
        "lease_token": reservation.token,
        "lease_expires_at": DatabaseNow() + lease,
        "expires_at": DatabaseNow() + expires,
    }
    rows = StoredResponse.objects.using(alias).filter(key_digest=identity.key_digest)
    while True:
        if insert_if_missing(rows, {"key_digest": identity.key_digest, **fresh}, _REMEDY):
            return reservation
        with suppress(StoredResponse.DoesNotExist):  # given back since: once more
            existing = database_for(alias).retrying(lambda: _take_over(rows, identity, fresh))
            return reservation if existing is None else existing


def _take_over(
    rows: QuerySet[StoredResponse], identity: RequestIdentity, fresh: dict[str, Any]
) -> HttpResponse | Unavailable | None:
    """What the row answers; None where it said nothing and is ours now."""
    with own_transaction(rows.db, _REMEDY):
        found = _locked(rows)
        if found.is_answered or found.is_live:
            return _existing(found, identity)
        rows.update(status_code=None, headers={}, body=None, created_at=DatabaseNow(), **fresh)
    return None


def can_be_stored(response: HttpResponseBase) -> bool:
    """Whether the answer is final, and so is given to every retry.

    Not where the server failed, nor where the client was told who to be or when to come again.
    """
    return response.status_code < 500 and response.status_code not in _TRY_AGAIN


#: Unauthorized, Forbidden, Request Timeout, Conflict, Locked, Too Early, Too Many Requests.
_TRY_AGAIN = frozenset({401, 403, 408, 409, 423, 425, 429})


def _locked(rows: QuerySet[StoredResponse]) -> Any:
    return (
        rows.select_for_update()
        .annotate(
            is_live=_truth(Q(status_code=None, lease_expires_at__gt=DatabaseNow())),
            is_answered=_truth(Q(status_code__isnull=False, expires_at__gt=DatabaseNow())),
        )
        .get()
    )


def _truth(condition: Q) -> Any:
    return ExpressionWrapper(condition, output_field=BooleanField())


def _existing(found: Any, identity: RequestIdentity) -> HttpResponse | Unavailable:
    if found.fingerprint != identity.fingerprint:
        return Unavailable.OTHER_REQUEST
    if not found.is_answered:
        return Unavailable.IN_PROGRESS
    body = bytes(found.body) if found.body is not None else b""
    replay = HttpResponse(body, status=found.status_code, headers=found.headers)
    if "Content-Type" not in found.headers:
        del replay["Content-Type"]
    replay[REPLAYED] = "true"
    return replay
