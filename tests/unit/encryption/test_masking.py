"""Masks say nothing of what they stand for."""

from __future__ import annotations

import pickle

import pytest

from django_outbox.encryption.masking import MASK, mask, masked
from django_outbox.encryption.stored import StoredValue, Undecryptable, stored_values


@pytest.mark.parametrize("value", ["", "a", "x" * 10_000, 0, False, [], b"x"])
def test_every_value_has_the_same_mask(value: object):
    assert mask(value) == MASK


def test_null_is_no_secret():
    assert mask(None) == ""


def test_members_are_masked_by_name():
    assert masked({"name": "Ayşe", "id": 7, "email": None}, {"name", "email"}) == {
        "name": MASK,
        "id": 7,
        "email": "",
    }


def test_a_stored_value_shows_a_mask():
    value = Undecryptable("ob1.g.a.secret", "crm.customer.tax_id", "damaged")
    assert str(value) == f"{value}" == MASK
    assert "secret" not in repr(value)
    assert pickle.loads(pickle.dumps(value)) == value
    assert value != StoredValue("ob1.g.a.secret", "crm.customer.tax_id")


def test_stored_values_end_with_their_block():
    from django_outbox.encryption.stored import carries_stored

    with stored_values():
        assert carries_stored()
        with stored_values():
            assert carries_stored()
        assert carries_stored()
    assert not carries_stored()
