"""Calls to other systems: once_outside() makes one call for one message.

Another system is in no transaction of ours, so the call is reserved in a transaction of its own
before it is made, and its outcome is stored after it. A crash in between is found at the next
delivery as a call whose outcome is unknown: it is looked up, never simply made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import Any, TypeAlias
from uuid import UUID, uuid4, uuid5

from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError, router
from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet

from django_outbox.consumers.reservations import insert_if_missing, own_transaction
from django_outbox.context import current_context
from django_outbox.databases import database_for
from django_outbox.databases.clock import DatabaseNow
from django_outbox.exceptions import CallInProgress, CallRefused, OutcomeUnknown
from django_outbox.logs import class_name
from django_outbox.messages import Message
from django_outbox.models import CallState, ExternalCall

#: The header that carries the key (draft-ietf-httpapi-idempotency-key-header).
IDEMPOTENCY_KEY = "Idempotency-Key"

#: Characters of a call's name, the size of its column.
MAX_NAME = 100

#: How long a duplicate waits before it asks again for a call that is under way.
_ASK_AGAIN = timedelta(seconds=30)
_REMEDY = (
    "Declare the consumer with mode='seen', and call once_outside outside of transaction.atomic()."
)


@dataclass(frozen=True, slots=True)
class Found:
    """The look-up's answer: the call took effect, and this is its outcome."""

    outcome: Any = field(repr=False)


class NotMade(Enum):
    """The look-up's answer: the call had no effect, so it can be made."""

    NOT_MADE = auto()


NOT_MADE = NotMade.NOT_MADE

#: Takes the key, returns what JSON can hold.
Call: TypeAlias = Callable[[str], Any]
#: Takes the key and asks the other system; what it raises leaves the outcome unknown.
LookUp: TypeAlias = Callable[[str], Found | NotMade]


def same_key_again(key: str) -> NotMade:
    """A look-up for systems that honour the Idempotency-Key: making the call again is safe there."""
    return NOT_MADE


def once_outside(
    message: Message,
    call: Call,
    *,
    look_up: LookUp | None = None,
    name: str = "",
    lease: timedelta = timedelta(minutes=5),
    using: str | None = None,
) -> Any:
    """Make one call to another system because of this message, and return its outcome.

    ``call`` gets the key to send as ``Idempotency-Key``, the message id, and returns what JSON can
    hold; a later delivery gets the stored outcome without a call. Where a consumer makes several
    calls for one message, each has a ``name`` and a key of its own. ``lease`` must be longer than
    the call can take: after it, the call counts as abandoned.

    Raises ``ValueError`` for a name of more than 100 characters and a lease of no length;
    ``InTransaction``; ``CallInProgress`` while another worker makes the call;
    ``OutcomeUnknown`` where one was started, nobody knows how it ended, and there is no ``look_up``.
    What ``call`` and ``look_up`` raise is raised on.
    """
    if len(name) > MAX_NAME:
        raise ValueError(f"name has more than {MAX_NAME} characters.")
    if lease <= timedelta(0):
        raise ValueError("lease must be longer than the call can take.")
    alias = using or router.db_for_write(ExternalCall)
    return _Reservation(alias, message.id, name, lease).make(call, look_up)


class _Step(Enum):
    """What is to be done about a call, by what its row says."""

    CALL = auto()
    LOOK_UP = auto()
    WAIT = auto()
    RETURN = auto()


def _next_step(state: str, *, is_live: bool) -> _Step:
    if state == CallState.FAILED:
        return _Step.CALL
    if state == CallState.SUCCEEDED:
        return _Step.RETURN
    if state == CallState.RESERVED and is_live:
        return _Step.WAIT
    return _Step.LOOK_UP


class _Reservation:
    """One worker's hold on one call, fenced by a token."""

    def __init__(self, alias: str, message_id: UUID, name: str, lease: timedelta) -> None:
        self.alias = alias
        self.identity: dict[str, Any] = {
            "consumer": current_context().consumer,
            "message_id": message_id,
            "name": name,
        }
        self.key = str(uuid5(message_id, name) if name else message_id)
        self.lease = lease
        self.token = uuid4()

    def make(self, call: Call, look_up: LookUp | None) -> Any:
        step, outcome = self._reserve(can_look_up=look_up is not None)
        if step is _Step.RETURN:
            return outcome
        if step is _Step.WAIT:
            raise CallInProgress(min(self.lease, _ASK_AGAIN))
        if step is _Step.LOOK_UP:
            if look_up is None:
                raise OutcomeUnknown
            answer = self._ask(look_up)
            if isinstance(answer, Found):
                return self._succeeded(answer.outcome)
            self._renew()
        return self._succeeded(self._call(call))

    def _ask(self, look_up: LookUp) -> Found | NotMade:
        try:
            answer = look_up(self.key)
            if not isinstance(answer, Found | NotMade):
                raise TypeError(
                    f"look_up returned {type(answer).__name__}. Return Found(outcome) where the call"
                    " took effect, NOT_MADE where it certainly did not, else raise."
                )
            return answer
        except Exception as error:
            self._note_unknown(error)
            raise

    def _call(self, call: Call) -> Any:
        try:
            return call(self.key)
        except CallRefused:
            self._ended(CallState.FAILED, "")
            raise
        except Exception as error:
            self._note_unknown(error)
            raise

    def _reserve(self, *, can_look_up: bool) -> tuple[_Step, Any]:
        """Commit the reservation, or find out why there is none to be had."""
        if insert_if_missing(self._rows(), {**self.identity, **self._hold(attempts=1)}, _REMEDY):
            return _Step.CALL, None
        database = database_for(self.alias)
        return database.retrying(lambda: self._take_over(can_look_up=can_look_up))

    def _take_over(self, *, can_look_up: bool) -> tuple[_Step, Any]:
        """Take the hold on a call that was reserved before, where nobody else has it."""
        with own_transaction(self.alias, _REMEDY):
            row = self._locked()
            step = _next_step(row.state, is_live=row.is_live)
            if step is _Step.LOOK_UP and not can_look_up:
                self._rows().update(
                    state=CallState.UNKNOWN,
                    lease_token=None,
                    lease_expires_at=None,
                    updated_at=DatabaseNow(),
                )
            elif step is _Step.LOOK_UP:
                self._rows().update(**self._hold())
            elif step is _Step.CALL:
                self._rows().update(**self._hold(attempts=F("attempts") + 1))
        return step, row.outcome

    def _rows(self) -> QuerySet[ExternalCall]:
        return ExternalCall.objects.using(self.alias).filter(**self.identity)

    def _locked(self) -> Any:
        is_live = ExpressionWrapper(
            Q(lease_expires_at__gt=DatabaseNow()), output_field=BooleanField()
        )
        return self._rows().select_for_update().annotate(is_live=is_live).get()

    def _hold(self, **changes: Any) -> dict[str, Any]:
        """What a row says while this worker is at it."""
        return {
            "state": CallState.RESERVED,
            "lease_token": self.token,
            "lease_expires_at": DatabaseNow() + self.lease,
            "updated_at": DatabaseNow(),
            **changes,
        }

    def _renew(self) -> None:
        """Keep the hold for the call itself; whoever lost it meanwhile must not call."""
        held = self._rows().filter(lease_token=self.token)
        if not held.update(
            lease_expires_at=DatabaseNow() + self.lease,
            attempts=F("attempts") + 1,
            updated_at=DatabaseNow(),
        ):
            raise CallInProgress(min(self.lease, _ASK_AGAIN))

    def _note_unknown(self, error: Exception) -> None:
        # Where this cannot be written either, the lease runs out and says the same.
        with suppress(DatabaseError):
            self._ended(CallState.UNKNOWN, class_name(error))

    def _succeeded(self, outcome: Any) -> Any:
        """Store the outcome; returns what a later delivery will be given."""
        try:
            text = json.dumps(outcome, cls=DjangoJSONEncoder, allow_nan=False)
        except (TypeError, ValueError) as error:
            self._ended(CallState.UNKNOWN, class_name(error))
            raise TypeError(
                "The call was made, but what it returned is not JSON and cannot be stored. Return"
                " the parts that later deliveries need."
            ) from None
        stored = json.loads(text)
        # Not fenced: whoever holds the reservation by now, the call did take effect.
        self._rows().exclude(state=CallState.SUCCEEDED).update(
            state=CallState.SUCCEEDED,
            outcome=stored,
            last_error="",
            lease_token=None,
            lease_expires_at=None,
            updated_at=DatabaseNow(),
        )
        return stored

    def _ended(self, state: CallState, error: str) -> None:
        self._rows().filter(lease_token=self.token).update(
            state=state,
            last_error=error[:255],
            lease_token=None,
            lease_expires_at=None,
            updated_at=DatabaseNow(),
        )
