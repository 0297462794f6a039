"""Every system check has a paragraph in the reference, and a test."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ID = re.compile(r"django_outbox\.[EWI]\d{3}")

IN_CODE = Counter(
    found
    for source in (ROOT / "django_outbox/checks").glob("*.py")
    for found in re.findall(r'id="(django_outbox\.\w+)"', source.read_text())
)
REFERENCE = (ROOT / "docs/reference/checks.md").read_text()


def test_there_are_checks():
    assert len(IN_CODE) > 15


@pytest.mark.parametrize("check_id", sorted(IN_CODE))
def test_an_id_belongs_to_one_message(check_id):
    assert ID.fullmatch(check_id)
    assert IN_CODE[check_id] == 1


@pytest.mark.parametrize("check_id", sorted(IN_CODE))
def test_a_check_has_a_paragraph_in_the_reference(check_id):
    paragraph = re.search(rf"^### {re.escape(check_id)}\n\n(.+)", REFERENCE, re.MULTILINE)
    assert paragraph is not None
    assert len(paragraph[1]) > 40


@pytest.mark.parametrize("check_id", sorted(IN_CODE))
def test_a_check_has_a_test(check_id):
    tests = (ROOT / "tests/integration/checks").glob("test_*.py")
    assert any(check_id in test.read_text() for test in tests)


def test_the_reference_describes_no_check_that_is_gone():
    assert set(re.findall(r"^### (\S+)$", REFERENCE, re.MULTILINE)) == set(IN_CODE)
