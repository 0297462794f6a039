"""@idempotent_request: a client may send a request again without fearing that it counts twice.

The behaviour of draft-ietf-httpapi-idempotency-key-header and of Stripe's interface: same key and
same request gives the stored response, same key and another request 422, still in progress 409,
key missing where required or malformed 400; problems as RFC 9457.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial, wraps
from http import HTTPStatus
from typing import Any, TypeVar, overload

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from django_outbox.consumers.idempotency import MalformedKey, default_scope, identify, parse_key
from django_outbox.consumers.responses import Reservation, Unavailable, can_be_stored, reserve
from django_outbox.exceptions import ImproperlyConfiguredOutbox, ResponseNotStorable

HEADER = "Idempotency-Key"
View = TypeVar("View", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyPolicy:
    """What ``@idempotent_request`` does with a request that carries a key."""

    required: bool = False
    """Whether a request without a key is refused; else it is handled as if undecorated."""
    methods: Collection[str] = ("POST", "PATCH")
    """The others are idempotent by definition, or read only (RFC 9110, 9.2)."""
    expires: timedelta = timedelta(hours=24)
    """How long the response is given again; afterwards the key is as good as new."""
    lease: timedelta = timedelta(minutes=1)
    """Longer than the view can take: after it, a request that never ended no longer bars its retry."""
    max_body: int = 256 * 1024
    """Bytes; a longer body is not stored, and a retry gets status and headers only."""
    store_body: bool = True
    """False keeps personal data out of the table: a retry gets status and headers only."""
    keep_headers: Collection[str] = ()
    """Response headers to store besides those that describe the answer. Never cookies."""
    scope: Callable[[HttpRequest], str] = field(default=default_scope)
    """Whose keys they are: the same key of two scopes is two keys."""
    using: str = DEFAULT_DB_ALIAS
    """The database of the view's effect; the view runs in one transaction on it."""

    def __post_init__(self) -> None:
        for option, problem in self._problems():
            raise ImproperlyConfiguredOutbox(f"@idempotent_request({option}=…): {problem}")

    def _problems(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.methods, str) or not all(name.isupper() for name in self.methods):
            yield "methods", 'must be a list of methods in capitals: ["POST", "PATCH"].'
        for option in ("expires", "lease"):
            if getattr(self, option) <= timedelta(0):
                yield option, "must be longer than nothing."
        if isinstance(self.keep_headers, str):
            yield "keep_headers", 'must be a list of names: ["X-Order-Id"].'
        elif any(name.lower() == "set-cookie" for name in self.keep_headers):
            yield (
                "keep_headers",
                "cookies are never stored; a replayed session cookie would log somebody in.",
            )


@overload
def idempotent_request(view: View, /) -> View: ...
@overload
def idempotent_request(**options: Any) -> Callable[[View], View]: ...
def idempotent_request(view: Any = None, /, **options: Any) -> Any:
    """Let clients repeat requests to this view safely; options are :class:`IdempotencyPolicy`'s.

    For functions, sync or async, and for classes through ``method_decorator(…, name="dispatch")``.
    The view runs in one transaction together with the storing of its response, so it is taken out of
    ``ATOMIC_REQUESTS`` for that database.
    """
    policy = IdempotencyPolicy(**options)
    return _decorate(view, policy) if view is not None else partial(_decorate, policy=policy)


def _decorate(view: Any, policy: IdempotencyPolicy) -> Any:
    if isinstance(view, type):
        raise ImproperlyConfiguredOutbox(
            f"@idempotent_request does not decorate the class {view.__name__} itself. Write"
            ' @method_decorator(idempotent_request, name="dispatch").'
        )
    is_atomic = policy.using not in getattr(view, "_non_atomic_requests", ())
    is_async = _is_async(view)

    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        answer = _answer_async if is_async else _answer
        return answer(request, partial(view, request, *args, **kwargs), policy, is_atomic)

    if iscoroutinefunction(view):
        markcoroutinefunction(wrapper)
    return transaction.non_atomic_requests(using=policy.using)(wraps(view)(wrapper))


def _is_async(view: Any) -> bool:
    """Whether the view returns a coroutine: an async function, or the dispatch() of an async class."""
    if iscoroutinefunction(view):
        return True
    # method_decorator hands over a partial of the bound method; dispatch() itself is always plain.
    bound = inspect.unwrap(view, stop=lambda wrapped: isinstance(wrapped, partial))
    instance = getattr(getattr(bound, "func", None), "__self__", None)
    return bool(getattr(instance, "view_is_async", False))


async def _answer_async(
    request: HttpRequest, call: Callable[[], Any], policy: IdempotencyPolicy, is_atomic: bool
) -> HttpResponseBase:
    # A transaction belongs to a thread. The view's coroutine runs in this event loop as before, but
    # its thread-sensitive calls, Django's database calls among them, run in the thread below, and so
    # inside the transaction that is open there.
    async def awaited() -> Any:
        response = call()
        return await response if inspect.isawaitable(response) else response

    if _passes_by(request, policy) and not _wants_transaction(policy.using, is_atomic):
        response: HttpResponseBase = await awaited()
        return response
    return await sync_to_async(_answer)(request, async_to_sync(awaited), policy, is_atomic)


def _answer(
    request: HttpRequest, call: Callable[[], Any], policy: IdempotencyPolicy, is_atomic: bool
) -> HttpResponseBase:
    if _passes_by(request, policy):
        # As if it were undecorated, ATOMIC_REQUESTS included.
        atomic = _wants_transaction(policy.using, is_atomic)
        with transaction.atomic(using=policy.using) if atomic else nullcontext():
            response: HttpResponseBase = call()
        return response
    header = request.headers.get(HEADER)
    if header is None:
        return _problem(HTTPStatus.BAD_REQUEST, "missing", f"This request needs an {HEADER}.")
    try:
        key = parse_key(header)
    except MalformedKey as error:
        return _problem(HTTPStatus.BAD_REQUEST, "malformed", f"The {HEADER} {error}.")
    identity = identify(request, key, policy.scope(request))
    reserved = reserve(
        policy.using, identity, request.method or "", lease=policy.lease, expires=policy.expires
    )
    if isinstance(reserved, HttpResponse):
        return reserved
    if isinstance(reserved, Unavailable):
        return _unavailable(reserved)
    return _handle(reserved, call, policy)


def _passes_by(request: HttpRequest, policy: IdempotencyPolicy) -> bool:
    if request.method not in policy.methods:
        return True
    return HEADER not in request.headers and not policy.required


def _wants_transaction(alias: str, is_atomic: bool) -> bool:
    return is_atomic and bool(connections[alias].settings_dict["ATOMIC_REQUESTS"])


def _handle(
    reservation: Reservation, call: Callable[[], Any], policy: IdempotencyPolicy
) -> HttpResponseBase:
    try:
        with transaction.atomic(using=policy.using):
            response = _rendered(call())
            kept = _keep(reservation, response, policy)
    except _LeaseLost:
        return _unavailable(Unavailable.IN_PROGRESS)
    except BaseException:
        _release(reservation)
        raise
    if not kept:
        _release(reservation)
    return response


class _LeaseLost(Exception):
    """Another request has taken the key over; this one's effect is rolled back."""


def _keep(reservation: Reservation, response: HttpResponseBase, policy: IdempotencyPolicy) -> bool:
    """Store the response beside the effect; False where there is nothing to be given again."""
    if response.status_code >= 500:
        # Not stored, so the retry runs again: what it has done so far must not stay.
        transaction.set_rollback(True, using=policy.using)
    if not can_be_stored(response) or connections[policy.using].needs_rollback:
        return False
    if not isinstance(response, HttpResponse):
        raise ResponseNotStorable(type(response).__name__)
    body = response.content if policy.store_body else None
    if body is not None and len(body) > policy.max_body:
        body = None
    if not reservation.store(response, body, policy.keep_headers):
        raise _LeaseLost
    return True


def _rendered(response: Any) -> HttpResponseBase:
    # A lazy response would be rendered after the transaction; what it is must be known inside.
    render = getattr(response, "render", None)
    rendered: HttpResponseBase = render() if callable(render) else response
    return rendered


def _release(reservation: Reservation) -> None:
    # Where it cannot be given back, its lease runs out.
    with suppress(DatabaseError):
        reservation.release()


def _unavailable(why: Unavailable) -> HttpResponse:
    if why is Unavailable.OTHER_REQUEST:
        return _problem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "reused",
            f"This {HEADER} was used for another request. Use a new one.",
        )
    response = _problem(
        HTTPStatus.CONFLICT,
        "in_progress",
        f"A request with this {HEADER} is in progress. Send it again later.",
    )
    response["Retry-After"] = "1"
    return response


def _problem(status: HTTPStatus, code: str, detail: str) -> HttpResponse:
    """A problem document (RFC 9457); ``code`` tells programs which."""
    content = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "code": f"idempotency_key_{code}",
    }
    return JsonResponse(content, status=status, content_type="application/problem+json")
