from __future__ import annotations

import re

import pytest
from django.core.management import CommandError, call_command

from django_outbox.publishers.locmem import LocMemPublisher


class NoPublisher:
    """Has one of the four methods."""

    def publish(self, messages):
        return []


def function_publisher(alias, options):
    return LocMemPublisher(alias, options)


LOCAL = "django_outbox.publishers.local.LocalPublisher"


def publishers(backend, **options):
    return {"default": {"BACKEND": backend, **options}}


def test_a_project_as_it_should_be_gets_no_message(ids):
    assert ids() == []


def test_a_slip_of_the_pen_is_reported_with_a_guess(outbox_settings, run_checks):
    outbox_settings(BATCHSIZE=5)
    (message,) = run_checks()
    assert message.id == "django_outbox.E001"
    assert "Did you mean 'BATCH_SIZE'?" in message.msg
    assert message.hint.startswith("Known keys")


def test_every_wrong_setting_has_a_message_of_its_own(outbox_settings, ids):
    outbox_settings(BATCH_SIZE="many", LEASE=-1, WAKEUP="bell")
    assert ids() == ["django_outbox.E001"] * 3


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"LEASE": 39, "CONFIRM_TIMEOUT": 20}, ["'LEASE'", "'CONFIRM_TIMEOUT'"]),
        ({"BACKOFF_BASE": 10, "BACKOFF_CAP": 9}, ["'BACKOFF_BASE'", "'BACKOFF_CAP'"]),
        ({"POLL_INTERVAL": (2, 1)}, ["'POLL_INTERVAL'"]),
        ({"RETENTION": {"published": 59}}, ["'published'", "'LEASE'"]),
        ({"RETENTION": {"discarded": 59}}, ["'discarded'", "'LEASE'"]),
        ({"RETENTION": {"dead": 59}}, ["'dead'", "'LEASE'"]),
        ({"RETENTION": {"processed": 3659}}, ["'processed'", "'LEASE'", "'BACKOFF_CAP'"]),
        ({"ROUTES": [("#", {"publisher": "elsewhere"})]}, ["'elsewhere'", "'ROUTES'"]),
    ],
)
def test_settings_that_contradict_each_other_are_reported_and_stop_a_relay(
    keys, named, outbox_settings, run_checks
):
    outbox_settings(**keys)
    (message,) = run_checks()
    assert message.id == "django_outbox.E001"
    assert all(name in message.msg for name in named)
    assert message.hint
    with pytest.raises(CommandError, match=re.escape(message.msg)):
        call_command("outbox_relay", skip_checks=True)


def test_settings_that_just_fit_are_right(outbox_settings, ids):
    outbox_settings(
        LEASE=40,
        CONFIRM_TIMEOUT=20,
        BACKOFF_CAP=9,
        BACKOFF_BASE=9,
        POLL_INTERVAL=(1, 1),
        RETENTION={"published": 0, "discarded": 40, "dead": 40, "processed": 49},
    )
    assert ids() == []


def test_settings_that_are_no_dict_are_reported_and_nothing_else_fails(settings, ids):
    settings.OUTBOX = ["PUBLISHERS"]
    assert ids() == ["django_outbox.E001"]


def test_a_publisher_that_cannot_be_imported_is_reported(outbox_settings, run_checks):
    outbox_settings(PUBLISHERS=publishers("django_outbox.publishers.pigeon.PigeonPublisher"))
    (message,) = run_checks()
    assert message.id == "django_outbox.E002"
    assert "'default'" in message.msg
    assert "pigeon" in message.msg


@pytest.mark.parametrize(
    ("name", "what"),
    [("NoPublisher", "lacks probe, close, check"), ("function_publisher", "no publisher")],
)
def test_a_class_that_is_no_publisher_is_reported(name, what, outbox_settings, run_checks):
    outbox_settings(PUBLISHERS=publishers(f"{__name__}.{name}"))
    (message,) = run_checks()
    assert message.id == "django_outbox.E003"
    assert what in message.msg


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("django_outbox.publishers.locmem.LocMemPublisher", {"URL": "x"}),
        ("django_outbox.publishers.console.ConsolePublisher", {"STREAM": 5}),
        ("django_outbox.publishers.console.ConsolePublisher", {"COLOR": True}),
        ("django_outbox.publishers.local.LocalPublisher", {"URL": "x"}),
    ],
)
def test_each_publisher_checks_its_own_options(backend, options, outbox_settings, run_checks):
    outbox_settings(PUBLISHERS=publishers(backend, **options))
    (message,) = run_checks()
    assert message.id == "django_outbox.E004"
    assert message.msg.startswith(f"OUTBOX['PUBLISHERS']['default']['{next(iter(options))}']")
    assert message.hint


def test_a_lease_that_a_publisher_may_outlive_is_an_error(outbox_settings, run_checks, ids):
    rabbitmq = {
        "BACKEND": "django_outbox.publishers.rabbitmq.RabbitMQPublisher",
        "URL": "amqp://nowhere:1",
        "EXCHANGE": "events",
    }
    outbox_settings(PUBLISHERS={"default": {**rabbitmq, "STACK_TIMEOUT": 9.5}})
    (message,) = run_checks()
    assert message.id == "django_outbox.E006"
    assert "'default'" in message.msg
    assert "61 s or more" in message.hint
    outbox_settings(LEASE=61)
    assert ids() == []


def test_a_publisher_that_no_route_names_may_take_its_time(outbox_settings, ids):
    slow = {
        "BACKEND": "django_outbox.publishers.rabbitmq.RabbitMQPublisher",
        "URL": "amqp://nowhere:1",
        "EXCHANGE": "events",
        "CONFIRM_TIMEOUT": 300,
    }
    outbox_settings(PUBLISHERS={"default": publishers(LOCAL)["default"], "slow": slow})
    assert ids() == []


def test_no_routes_at_all_are_reported(outbox_settings, ids):
    outbox_settings(ROUTES=[])
    assert ids() == ["django_outbox.W001"]


@pytest.mark.parametrize(
    "patterns", [["#", "invoice.*"], ["invoice.*", "order.#", "invoice.*"], ["a.b", "#", "a.b"]]
)
def test_a_route_behind_one_that_takes_everything_is_reported(patterns, outbox_settings, ids):
    outbox_settings(ROUTES=[(pattern, {}) for pattern in patterns])
    assert ids() == ["django_outbox.W002"]


def test_special_routes_before_the_general_one_are_right(outbox_settings, ids):
    outbox_settings(ROUTES=[("invoice.issued", {}), ("invoice.*", {}), ("#", {})])
    assert ids() == []


@pytest.mark.parametrize(
    "backend",
    [
        "django_outbox.publishers.locmem.LocMemPublisher",
        "django_outbox.publishers.console.ConsolePublisher",
    ],
)
def test_a_publisher_for_development_is_reported_before_deployment(backend, outbox_settings, ids):
    outbox_settings(PUBLISHERS=publishers(backend))
    assert ids() == []
    assert ids(deploy=True) == ["django_outbox.W003"]


def test_a_publisher_for_development_that_no_route_names_may_stay(outbox_settings, ids):
    outbox_settings(
        PUBLISHERS={
            "default": {"BACKEND": "django_outbox.publishers.local.LocalPublisher"},
            "spare": {"BACKEND": "django_outbox.publishers.console.ConsolePublisher"},
        }
    )
    assert ids(deploy=True) == []


def test_an_archive_that_cannot_be_made_is_reported(outbox_settings, run_checks):
    outbox_settings(ARCHIVE="nowhere.keep")
    (message,) = run_checks()
    assert message.id == "django_outbox.E007"
    assert "'nowhere.keep'" in message.msg
