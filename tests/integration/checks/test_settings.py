from __future__ import annotations

import pytest

from django_outbox.publishers.locmem import LocMemPublisher


class NoPublisher:
    """Has one of the four methods."""

    def publish(self, messages):
        return []


def function_publisher(alias, options):
    return LocMemPublisher(alias, options)


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
