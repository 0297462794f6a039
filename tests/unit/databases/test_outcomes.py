from __future__ import annotations

from datetime import timedelta

from django_outbox.batches import Dead, Published, Released, Retry
from django_outbox.databases.outcomes import LAST_ERROR_LENGTH, Lease, Outcomes


def test_verdicts_are_sorted_by_kind_and_by_row() -> None:
    outcomes = Outcomes.of(
        {
            9: Published(),
            3: Retry(timedelta(seconds=1.5), "nack"),
            7: Dead("unroutable"),
            1: Released(),
            4: Published(),
            2: Retry(timedelta(minutes=1), "time-out"),
        }
    )
    assert outcomes == Outcomes(
        published=[4, 9],
        released=[1],
        retried=[(2, 60.0, "time-out"), (3, 1.5, "nack")],
        dead=[(7, "unroutable")],
    )


def test_a_delay_is_never_negative() -> None:
    assert Outcomes.of({1: Retry(timedelta(seconds=-5), "x")}).retried == [(1, 0.0, "x")]


def test_a_reason_is_made_to_fit_its_column() -> None:
    [(_, reason)] = Outcomes.of({1: Dead("\x00\ud800" + "ü" * 10_000)}).dead
    assert reason == "\ufffd?" + "ü" * (LAST_ERROR_LENGTH - 2)


def test_every_lease_has_a_token_of_its_own() -> None:
    leases = [Lease.new(timedelta(minutes=1), "h" * 200) for _ in range(2)]
    assert leases[0].token != leases[1].token
    assert (leases[0].seconds, leases[0].leased_by) == (60.0, "h" * 100)
