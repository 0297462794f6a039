from __future__ import annotations

import functools

import pytest

from django_outbox.consumers import Consumer, Mode, consumer
from django_outbox.consumers.registry import (
    all_consumers,
    consumer_named,
    consumers_for,
    is_registered,
    isolated_registry,
    registry_problems,
)
from django_outbox.exceptions import ImproperlyConfiguredOutbox, UnknownConsumer


def handle(message: object) -> None:
    pass


def handle_too(message: object) -> None:
    pass


def names(topic: str) -> list[str]:
    return [each.name for each in consumers_for(topic)]


def test_the_decorated_function_stays_what_it_is():
    assert consumer("a.b", name="x")(handle) is handle


def test_every_consumer_of_a_topic_is_found_by_its_patterns():
    consumer("invoice.issued", name="ledger")(handle)
    consumer("invoice.*", "order.#", name="mailer")(handle)
    consumer("#", name="audit")(handle)
    assert names("invoice.issued") == ["audit", "ledger", "mailer"]
    assert names("order.line.added") == ["audit", "mailer"]
    assert names("invoice.line.added") == ["audit"]


def test_options_are_kept():
    consumer("a.b", name="x", drop_stale=True, max_attempts=3, batch=100, database="replica")(
        handle
    )
    assert consumer_named("x") == Consumer(
        name="x",
        patterns=("a.b",),
        handler=handle,
        mode=Mode.TRANSACTIONAL,
        drop_stale=True,
        max_attempts=3,
        batch=100,
        database="replica",
    )


def test_an_unknown_name_is_answered_with_those_that_exist():
    consumer("a.b", name="ledger")(handle)
    with pytest.raises(UnknownConsumer, match=r"'ledgr'.*'ledger'"):
        consumer_named("ledgr")
    assert is_registered("ledger")
    assert not is_registered("ledgr")


def test_a_name_taken_twice_is_a_problem_and_never_half_works():
    consumer("a.b", name="ledger")(handle)
    consumer("c.d", name="ledger")(handle_too)
    ((problem, hint),) = registry_problems()
    assert "'ledger'" in problem
    assert "handle " in problem
    assert "handle_too" in problem
    assert "own" in hint
    for use in (all_consumers, lambda: consumer_named("ledger"), lambda: consumers_for("x.y")):
        with pytest.raises(ImproperlyConfiguredOutbox, match="more than once"):
            use()


def test_one_function_declared_twice_under_one_name_is_a_problem_too():
    consumer("a.b", name="ledger")(consumer("c.d", name="ledger")(handle))
    assert len(registry_problems()) == 1


def test_a_database_that_is_not_configured_is_a_problem():
    consumer("a.b", name="here", database="default")(handle)
    consumer("a.b", name="there", database="elsewhere")(handle)
    ((problem, hint),) = registry_problems()
    assert "'there'" in problem
    assert "'elsewhere'" in problem
    assert "default" in hint


def test_a_module_that_is_imported_again_replaces_its_own_consumers():
    def again() -> object:
        def handle_once(message: object) -> None:
            pass

        return consumer("a.b", name="ledger")(handle_once)

    again()
    latest = again()
    assert registry_problems() == []
    assert consumer_named("ledger").handler is latest


def test_one_function_may_be_two_consumers():
    consumer("a.b", name="one")(consumer("a.b", name="two")(handle))
    assert names("a.b") == ["one", "two"]


async def coroutine(message: object) -> None:
    pass


def generator(message: object) -> object:
    yield


def two_arguments(message: object, other: object) -> None:
    pass


def keyword_only(*, message: object) -> None:
    pass


class AsyncCallable:
    async def __call__(self, message: object) -> None:
        pass


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (coroutine, "async"),
        (AsyncCallable(), "async"),
        (functools.partial(coroutine), "async"),
        (generator, "generator"),
        (two_arguments, "one positional argument, one message"),
        (keyword_only, "one positional argument"),
        (lambda: None, "one positional argument"),
        ("handle", "cannot be called"),
    ],
)
def test_a_handler_that_would_do_nothing_or_fail_is_refused(handler, why):
    with pytest.raises(ImproperlyConfiguredOutbox, match=why) as refused:
        consumer("a.b", name="x")(handler)
    assert "'x'" in str(refused.value)
    assert not is_registered("x")


class Callable_:
    def __call__(self, message: object) -> None:
        pass

    def method(self, message: object) -> None:
        pass


@pytest.mark.parametrize(
    "handler",
    [
        handle,
        Callable_(),
        Callable_().method,
        functools.partial(two_arguments, other=1),
        lambda *args: None,
        print,
    ],
)
def test_anything_that_takes_one_argument_is_a_handler(handler):
    consumer("a.b", name="x")(handler)
    assert is_registered("x")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": ""}, "1 to 100"),
        ({"name": "x" * 101}, "1 to 100"),
        ({"name": "a\nb"}, "printable"),
        ({"mode": "exactly-once"}, "'exactly-once'.*'transactional', 'seen'"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 40_000}, "max_attempts"),
        ({"batch": 0}, "batch"),
        ({"mode": "seen", "drop_stale": True}, "drop_stale"),
        ({"mode": "seen", "batch": 10}, "batch"),
    ],
)
def test_options_that_cannot_work_are_refused(options, why):
    with pytest.raises(ImproperlyConfiguredOutbox, match=why):
        consumer("a.b", **{"name": "x", **options})(handle)


@pytest.mark.parametrize("pattern", ["", "a..b", "a.b*", ".a"])
def test_a_pattern_that_is_none_is_refused(pattern):
    with pytest.raises(ImproperlyConfiguredOutbox, match="topic pattern"):
        consumer(pattern, name="x")(handle)


def test_a_consumer_of_nothing_is_refused():
    with pytest.raises(ImproperlyConfiguredOutbox, match="no topic"):
        consumer(name="x")


def test_an_isolated_registry_leaves_no_trace():
    consumer("a.b", name="before")(handle)
    with isolated_registry():
        assert all_consumers() == []
        consumer("a.b", name="inside")(handle)
    assert [each.name for each in all_consumers()] == ["before"]
