"""Topic patterns, with the meaning that AMQP topic exchanges give them.

``*`` stands for exactly one word, ``#`` for any number of words, none included; words are separated
by dots (AMQP 0-9-1, 3.1.3.3). One meaning for routes, consumers, the relay's ``--topics`` and queue
bindings. Pure: neither Django nor a broker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

_WORD = r"[^.]+"
# CloudEvents 1.0 allows no control characters in strings; whitespace and wildcards would make a
# topic that no binding can name.
_TOPIC = re.compile(r"[^\s.*#\x00-\x1f\x7f-\x9f]+(\.[^\s.*#\x00-\x1f\x7f-\x9f]+)*")


def form_problem(topic: str) -> str | None:
    """What is wrong with the text as a topic, if anything; its length is the wire's concern."""
    if _TOPIC.fullmatch(topic):
        return None
    return (
        "must be words separated by dots, without spaces and without the wildcards '*' and '#':"
        " for example 'invoice.issued'."
    )


@lru_cache(maxsize=1024)
def pattern_regex(pattern: str) -> str:
    """The pattern as an anchored regular expression that Python, PostgreSQL and MySQL read alike.

    Raises ``ValueError`` for an empty pattern, an empty word, or a wildcard inside a word.
    """
    words = [
        word
        for previous, word in pairwise(["", *pattern.split(".")])
        if not word == previous == "#"  # '#.#' says no more than '#'
    ]
    for word in words:
        if not word or (len(word) > 1 and ("*" in word or "#" in word)):
            raise ValueError(
                f"{pattern!r} is not a topic pattern: words separated by dots, where a whole word"
                " may be '*' (one word) or '#' (any number of words)."
            )
    regex = ""
    for position, word in enumerate(words):
        if word == "#":
            regex += rf"({_WORD}(\.{_WORD})*)?" if position == 0 else rf"(\.{_WORD})*"
            continue
        separator = "" if position == 0 else r"\."
        if position == 1 and words[0] == "#":
            # A leading '#' that stands for no word takes its dot with it.
            regex, separator = rf"({_WORD}\.)*", ""
        regex += separator + (_WORD if word == "*" else re.escape(word))
    return f"^{regex}$"


@lru_cache(maxsize=4096)
def matches(pattern: str, topic: str) -> bool:
    """Whether the topic falls under the pattern."""
    return re.match(pattern_regex(pattern), topic) is not None


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """A set of topics: the first rule whose pattern matches decides, else ``default``.

    Plain data, so that a database can evaluate the same rules that Python does.
    """

    rules: tuple[tuple[str, bool], ...] = ()
    default: bool = True

    def __contains__(self, topic: str) -> bool:
        for pattern, selected in self.rules:
            if matches(pattern, topic):
                return selected
        return self.default

    @property
    def is_everything(self) -> bool:
        """True when no topic is left out."""
        return self.default and all(selected for _, selected in self.rules)

    @property
    def is_nothing(self) -> bool:
        """True when no topic is selected."""
        return not self.default and not any(selected for _, selected in self.rules)

    @classmethod
    def only(cls, patterns: Iterable[str]) -> TopicSelection:
        """The topics that fall under at least one of the patterns."""
        return cls(tuple((pattern, True) for pattern in patterns), default=False)


EVERY_TOPIC = TopicSelection()
NO_TOPIC = TopicSelection(default=False)
