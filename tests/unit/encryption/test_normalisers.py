# ruff: noqa: RUF001 - look-alike letters are what is tested here
"""Normalisers: what counts as the same value."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_outbox.encryption.normalisers import (
    NAMES,
    folds_case,
    normalise,
    pinned,
    unknown,
)


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (["strip"], ["ali", " ali", "ali\t\n"]),
        (["nfc"], ["Şükrü", unicodedata.normalize("NFD", "Şükrü")]),
        (["nfkc"], ["ABC123", "ＡＢＣ１２３"]),
        (["casefold"], ["straße", "STRASSE", "Strasse"]),
        (["casefold"], ["é", "É", "e\u0301", "E\u0301"]),
        (["turkish_casefold"], ["IŞIK", "ışık", "Işık"]),
        (["turkish_casefold"], ["İPEK", "ipek", "İpek", unicodedata.normalize("NFD", "İPEK")]),
        (
            ["digits"],
            [
                "12345678901",
                "123 456-789.01",
                "TR12345678901",
                "１２３４５６７８９０１",
                "١٢٣٤٥٦٧٨٩٠١",
            ],
        ),
        (["email"], ["ayse@example.com", " Ayse@EXAMPLE.com ", "ａｙｓｅ@example.com"]),
        (["strip", "casefold"], ["ali veli", "  ALI VELI "]),
    ],
)
def test_these_are_the_same(names: list[str], values: list[str]):
    assert len({normalise(value, names) for value in values}) == 1


@pytest.mark.parametrize(
    ("names", "one", "other"),
    [
        ([], "Ali", "ali"),
        (["strip"], "ali", "Ali"),
        (["casefold"], "ısı", "isi"),
        (["turkish_casefold"], "ILIK", "İLİK"),
        (["digits"], "123", "124"),
        (["nfc"], "²", "2"),
    ],
)
def test_these_are_not(names: list[str], one: str, other: str):
    assert normalise(one, names) != normalise(other, names)


@given(st.text(), st.sampled_from(NAMES))
def test_normalising_twice_changes_nothing(value: str, name: str):
    once = normalise(value, [name])
    assert normalise(once, [name]) == once


def test_a_name_without_a_version_is_version_one_for_ever():
    assert pinned("digits") == "digits@1"
    assert pinned("digits@2") == "digits@2"
    assert normalise("a1", ["digits@1"]) == "1"


def test_an_unknown_name_is_told_without_the_value():
    assert unknown(("digits", "phone", "strip@7")) == ("phone", "strip@7")
    with pytest.raises(LookupError, match="phone") as caught:
        normalise("12345678901", ["phone"])
    assert "12345678901" not in str(caught.value)


def test_which_normalisers_fold_case():
    assert folds_case(("strip", "casefold"))
    assert folds_case(("turkish_casefold@1",))
    assert folds_case(("email",))
    assert not folds_case(("strip", "digits"))
