"""Sphinx: ``sphinx-build -W -b html docs docs/_build``."""

from __future__ import annotations

import re
from pathlib import Path

_init = (Path(__file__).parent.parent / "django_outbox" / "__init__.py").read_text("utf-8")

project = "django-transactional-outbox"
copyright = "the django-transactional-outbox authors"  # noqa: A001 - Sphinx's name for it
release = re.search(r'__version__ = "(.+)"', _init)[1]  # type: ignore[index]
version = release

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
