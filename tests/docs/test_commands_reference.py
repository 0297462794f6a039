"""The reference of the commands says what their parsers take: every command, every option."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\S[^\n]*)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
HOMES = ("django_outbox/management/commands", "django_outbox/encryption/management/commands")
NAMES = sorted(path.stem for home in HOMES for path in (ROOT / home).glob("outbox_*.py"))
#: These take the filters of the section "Choosing messages" as well.
CHOOSING = {"outbox_requeue", "outbox_discard", "outbox_replay"}


def in_parser(name: str) -> set[str]:
    """The options of the command, without those that every command of Django's has."""
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    of_django = {action.dest for action in BaseCommand().create_parser("manage.py", "x")._actions}
    return {
        action.option_strings[-1] if action.option_strings else action.dest
        for action in parser._actions
        if action.dest not in of_django and action.help != argparse.SUPPRESS
    }


def in_page(section: str) -> set[str]:
    return set(re.findall(r"^\| `([^`]+)` \| [^|]+ \|$", section, re.MULTILINE))


def test_every_command_has_a_section_and_no_other_has() -> None:
    assert sorted(set(SECTIONS) - {"Choosing messages"}) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_section_names_every_option_and_no_other(name: str) -> None:
    filters = in_page(SECTIONS["Choosing messages"]) if name in CHOOSING else set()
    described = SECTIONS[name].partition("The JSON object")[0]
    assert in_page(described) | filters == in_parser(name)
    assert not in_page(described) & filters


def test_the_actions_of_the_schema_command_are_those_of_its_parser() -> None:
    parser = load_command_class(get_commands()["outbox_schema"], "outbox_schema").create_parser(
        "manage.py", "outbox_schema"
    )
    (action,) = (action for action in parser._actions if action.dest == "action")
    (described,) = re.findall(
        r"^\| `action` \| (.+)\. \|$", SECTIONS["outbox_schema"], re.MULTILINE
    )
    assert described.replace("`", "").split(" or ") == list(action.choices or ())


def test_the_keys_of_the_json_are_those_of_the_stats() -> None:
    _, _, described = SECTIONS["outbox_stats"].partition("The JSON object")
    source = (ROOT / "django_outbox" / "operations" / "stats.py").read_text(encoding="utf-8")
    body = source.partition("def as_json")[2].partition("\ndef ")[0]
    keys = set(re.findall(r'^            "(\w+)":', body, re.MULTILINE))
    assert in_page(described) == keys
