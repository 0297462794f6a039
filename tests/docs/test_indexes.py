"""Each folder of the documentation has an index that names its pages, for those who read the files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
INDEXES = sorted(DOCS.glob("*/index.md"))
LINK = re.compile(r"\]\(([^)#:]+)[^)]*\)")


def linked_from(page: Path) -> set[str]:
    return set(LINK.findall(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("index", INDEXES, ids=[index.parent.name for index in INDEXES])
def test_an_index_links_to_every_page_of_its_folder(index: Path) -> None:
    pages = {page.name for page in index.parent.glob("*.md")} - {"index.md"}
    assert pages - linked_from(index) == set()


def test_the_front_page_links_to_every_index() -> None:
    indexes = {index.relative_to(DOCS).as_posix() for index in INDEXES}
    assert indexes - linked_from(DOCS / "index.md") == set()


def test_a_decision_is_listed_by_its_title() -> None:
    listed = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    for page in sorted((DOCS / "decisions").glob("0*.md")):
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        assert title.startswith(f"{page.name[:4]}: ")
        assert f"[{title}]({page.name})" in listed
