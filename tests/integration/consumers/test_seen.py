from __future__ import annotations

import pytest
from django.core.cache import caches
from django.db import connections, transaction

from django_outbox.consumers import Consumer, Mode, Processed, process_once
from django_outbox.messages import Message
from django_outbox.models import ProcessedMessage
from tests.conftest import EVERY_DATABASE
from tests.support.messages import received
from tests.support.services import REDIS_URL, require, session_name

LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "seen"}
REDIS = {
    "BACKEND": "django.core.cache.backends.redis.RedisCache",
    "LOCATION": REDIS_URL,
    "KEY_PREFIX": session_name(),
}
MEMCACHED_LIMIT = 250  # characters of a key


class Broken(Exception):
    pass


def seen(handled: list[Message], name: str = "mirror") -> Consumer:
    return Consumer(name=name, mode=Mode.SEEN, handler=handled.append)


@pytest.fixture(params=["table", "locmem", "redis"])
def kept_in(request, settings, database):
    """The record of this test: the table, or one of Django's caches."""
    if request.param == "redis":
        require(REDIS_URL, "Redis")
    settings.CACHES = {
        "default": LOCMEM,
        "seen": {"locmem": LOCMEM, "redis": REDIS}.get(request.param, LOCMEM),
    }
    where = "table" if request.param == "table" else "cache"
    settings.OUTBOX = {**settings.OUTBOX, "CONSUMERS": {"SEEN_IN": where, "CACHE": "seen"}}
    yield request.param
    caches["seen"].clear()


def test_a_message_is_handled_once_and_then_known(kept_in):
    handled: list[Message] = []
    message = received()
    happened = [process_once(seen(handled), message) for _ in range(3)]
    assert happened == [Processed.HANDLED, Processed.DUPLICATE, Processed.DUPLICATE]
    assert handled == [message]
    assert ProcessedMessage.objects.exists() is (kept_in == "table")


def test_a_handler_that_raises_is_not_recorded(kept_in):
    def fail(message: Message) -> None:
        raise Broken

    message = received()
    with pytest.raises(Broken):
        process_once(Consumer(name="mirror", mode=Mode.SEEN, handler=fail), message)
    assert process_once(seen([]), message) is Processed.HANDLED


def test_consumers_remember_for_themselves(kept_in):
    message = received()
    process_once(seen([], "one"), message)
    assert process_once(seen([], "two"), message) is Processed.HANDLED


def test_a_cache_gets_keys_that_every_backend_takes(settings, database):
    settings.CACHES = {"default": LOCMEM}
    settings.OUTBOX = {**settings.OUTBOX, "CONSUMERS": {"SEEN_IN": "cache"}}
    process_once(seen([], "a name with spaces, ü and " + "x" * 70), received())
    (key,) = caches["default"]._cache
    assert len(key) < MEMCACHED_LIMIT
    assert all(33 <= ord(character) < 127 for character in key)


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_the_handler_runs_outside_of_any_transaction(database):
    open_while_handling: list[bool] = []

    def look(message: Message) -> None:
        open_while_handling.append(connections["default"].in_atomic_block)

    process_once(Consumer(name="mirror", mode=Mode.SEEN, handler=look), received())
    assert open_while_handling == [False]


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_inside_a_transaction_of_the_caller_the_record_belongs_to_it(database):
    message = received()
    with transaction.atomic():
        process_once(seen([]), message)
        transaction.set_rollback(True)
    assert process_once(seen([]), message) is Processed.HANDLED


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_two_deliveries_at_once_may_both_run_and_leave_one_record(database):
    message = received()
    inner: list[Processed] = []

    def handle(outer: Message) -> None:
        inner.append(process_once(seen([]), message))

    process_once(Consumer(name="mirror", mode=Mode.SEEN, handler=handle), message)
    assert inner == [Processed.HANDLED]
    assert ProcessedMessage.objects.count() == 1
