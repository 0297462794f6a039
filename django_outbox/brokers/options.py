"""Options of a publisher or a consumer, read one by one; all that is wrong is found at once.

A problem names its place and the option, and says what is wrong with a value without the value: it
may be a URL with a password.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from django_outbox.conf_values import unknown_key

T = TypeVar("T")
Problem: TypeAlias = tuple[str, str]
"""What is wrong, and what to do about it."""


class WrongOption(Exception):
    """What is wrong with one option's value, said without the value, and a hint."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


class OptionReader:
    """Takes options apart and collects what is wrong instead of stopping at it."""

    def __init__(self, options: Mapping[str, Any], where: str) -> None:
        self.options, self.where = options, where
        self.problems: list[Problem] = []

    def read(
        self, key: str, convert: Callable[[Any], T], default: T, *, required: str | None = None
    ) -> T:
        """The option's value. ``required``: the hint for the case that it is missing."""
        if key not in self.options:
            if required is not None:
                self.add(f"{self.where} needs {key!r}.", required)
            return default
        try:
            return convert(self.options[key])
        except WrongOption as wrong:
            self.add(f"{self.where}[{key!r}] {wrong.what}", wrong.hint)
            return default

    def find_unknown(self, known: frozenset[str]) -> None:
        """Add a problem for each key that nobody reads, with the nearest that exists."""
        for key in self.options:
            if key not in known:
                self.add(*unknown_key(self.where, key, known))

    def add(self, problem: str, hint: str) -> None:
        """Note a problem."""
        self.problems.append((problem, hint))


def seconds(value: Any) -> float:
    """An option that is a time: a timedelta or a number of seconds, above zero."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongOption("must be a timedelta or a number of seconds.")
    if not 0 < value <= 86_400:
        raise WrongOption("must be more than 0 seconds and at most a day.")
    return float(value)


def text(value: Any) -> str:
    """An option that is a non-empty string."""
    if not isinstance(value, str) or not value:
        raise WrongOption("must be a non-empty string.")
    return value


def flag(value: Any) -> bool:
    """An option that is True or False."""
    if not isinstance(value, bool):
        raise WrongOption("must be True or False.", "With django-environ read it by env.bool(…).")
    return value
