"""The tutorial, done as it says: in a fresh directory, its blocks one after the other."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(
    r"^```(?:\{code-block\} )?(?P<language>\w+)\n(?::caption: (?P<caption>[^\n]+)\n\n)?(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
AT_THE_END = " (at the end)"
#: What the environment of the tests has done already.
INSTALLATION = "$ python -m pip install django-transactional-outbox\n"
#: Runs a session as `manage.py shell` would, and fails where the answers differ.
SESSION = """
import doctest, sys, django
django.setup()
test = doctest.DocTestParser().get_doctest(sys.stdin.read(), {}, "session", "tutorial.md", 0)
flags = doctest.ELLIPSIS
sys.exit(bool(doctest.DocTestRunner(optionflags=flags).run(test).failed))
"""


@dataclass(frozen=True)
class Block:
    language: str
    caption: str
    text: str


def blocks() -> Iterator[Block]:
    for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        yield Block(found["language"], found["caption"] or "", found["text"])


def write(directory: Path, block: Block) -> None:
    path = directory / block.caption.removesuffix(AT_THE_END)
    before = path.read_text("utf-8") + "\n\n" if block.caption.endswith(AT_THE_END) else ""
    path.write_text(before + block.text, encoding="utf-8")


def run(directory: Path, arguments: list[str], stdin: str = "", *, fails: bool = False) -> str:
    """The output of a command in the directory; errors and output together, as on a screen."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO_")}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    env |= {"DJANGO_SETTINGS_MODULE": "shop.settings"}
    # Two files of one size written within a second would share a cached bytecode.
    env |= {"PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        arguments,
        cwd=directory,
        env=env,
        input=stdin,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    assert bool(ran.returncode) is fails, f"{arguments}\n{stdin}\n{ran.stdout}"
    return ran.stdout


def type_in(directory: Path, text: str) -> None:
    """Run a console block: each command, and a comparison with the output that stands below it."""
    for command in text.removeprefix("$ ").split("\n$ "):
        line, _, expected = command.partition("\n")
        output = run(directory, ["bash", "-c", line], fails="\nCommandError: " in expected)
        if expected.strip():
            same = doctest.OutputChecker().check_output(expected, output, doctest.ELLIPSIS)
            assert same, f"$ {line}\n{output}"


def test_the_tutorial_works_as_it_is_written(tmp_path: Path) -> None:
    done = []
    for block in blocks():
        if block.caption:
            write(tmp_path, block)
        elif block.language == "pycon":
            run(tmp_path, [sys.executable, "-c", SESSION], stdin=block.text)
        elif block.language == "console" and block.text != INSTALLATION:
            type_in(tmp_path, block.text)
        done.append(block)
    assert {"python", "pycon", "console"} == {block.language for block in done}
    assert done[0].text == INSTALLATION
