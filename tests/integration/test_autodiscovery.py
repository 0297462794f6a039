from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

from django_outbox.consumers.registry import consumer_named, is_registered, isolated_registry

CONSUMERS = """
from django_outbox.consumers import consumer

@consumer("invoice.issued", name="found in consumers.py")
def handle(message): ...
"""
EVENTS = """
from django_outbox.consumers import consumer

@consumer("invoice.issued", name="found in events.py")
def handle(message): ...
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Write an app of these modules and return the settings under which it is installed."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, **modules: str) -> Any:
        (tmp_path / name).mkdir()
        for module, source in {"__init__": "", **modules}.items():
            (tmp_path / name / f"{module}.py").write_text(source)
        return override_settings(INSTALLED_APPS=[*django_settings.INSTALLED_APPS, name])

    with isolated_registry():
        yield write
    for module in [name for name in sys.modules if name.startswith("newapp")]:
        del sys.modules[module]


def test_the_consumers_and_events_of_every_app_are_found(install):
    with install("newapp_both", consumers=CONSUMERS, events=EVENTS):
        assert consumer_named("found in consumers.py").takes("invoice.issued")
        assert is_registered("found in events.py")


def test_an_app_without_them_is_left_alone(install):
    with install("newapp_empty"):
        assert not is_registered("found in consumers.py")


def test_a_mistake_in_a_consumers_module_is_not_swallowed(install):
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        install("newapp_broken", consumers="import no_such_module").enable()
