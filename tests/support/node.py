"""Packages of the npm registry, for tests that hold our output against somebody else's reading."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

from tests.support.services import IN_CI

_HOME = Path(tempfile.gettempdir()) / "outbox_test_node"


@lru_cache
def npm_package(name: str, version: str) -> Path:
    """The folder of an installed package. Skips the test, or fails it in CI, where npm is missing."""
    if shutil.which("npm") is None:
        return _missing("npm is not installed")
    folder = _HOME / f"{name.replace('/', '_')}-{version}"
    installed = folder / "node_modules" / name
    if not installed.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(folder), "--no-save", f"{name}@{version}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            return _missing(f"npm could not install {name}: {done.stderr.strip()[-300:]}")
    return installed


def _missing(reason: str) -> Path:
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
