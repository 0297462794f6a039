"""What counts as the same value for a blind index: named, versioned, never changed.

A name without a version means version 1, for ever: a better rule is a new version, or every tag
already stored would stop matching. Each takes and returns text; they apply from left to right.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache

Normaliser = Callable[[str], str]


def strip(value: str) -> str:
    """Without white space around it."""
    return value.strip()


def nfc(value: str) -> str:
    """Composed: an accent written as a letter of its own joins its base letter."""
    return unicodedata.normalize("NFC", value)


def nfkc(value: str) -> str:
    """Composed, and full-width, superscript or ligature forms as plain ones."""
    return unicodedata.normalize("NFKC", value)


def casefold(value: str) -> str:
    """Without case, by Unicode's rule for every language but Turkish and Azeri."""
    return nfc(nfc(value).casefold())


def turkish_casefold(value: str) -> str:
    """Without case as Turkish and Azeri read it: dotted I is i, and plain I is the dotless i."""
    return nfc(nfc(value).replace("\u0130", "i").replace("I", "\u0131").casefold())


def digits(value: str) -> str:
    """The decimal digits alone, of any script, as 0 to 9."""
    return "".join(
        str(unicodedata.decimal(character)) for character in value if character.isdecimal()
    )


def email(value: str) -> str:
    """An address without white space, width and case. (The local part too: nobody's mail needs it.)"""
    return casefold(nfkc(value).strip())


_VERSIONS: dict[str, Normaliser] = {
    "casefold@1": casefold,
    "digits@1": digits,
    "email@1": email,
    "nfc@1": nfc,
    "nfkc@1": nfkc,
    "strip@1": strip,
    "turkish_casefold@1": turkish_casefold,
}
_FOLDING = frozenset({"casefold@1", "email@1", "turkish_casefold@1"})

#: The names that exist, without their versions.
NAMES = tuple(sorted({name.partition("@")[0] for name in _VERSIONS}))


def pinned(name: str) -> str:
    """The name with its version: ``digits`` is ``digits@1``."""
    return name if "@" in name else f"{name}@1"


@lru_cache(maxsize=256)
def unknown(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the names that are no normalisers."""
    return tuple(name for name in names if pinned(name) not in _VERSIONS)


@lru_cache(maxsize=256)
def folds_case(names: tuple[str, ...]) -> bool:
    """Whether values that differ only in case come out the same."""
    return any(pinned(name) in _FOLDING for name in names)


def normalise(value: str, names: Iterable[str]) -> str:
    """Apply the named normalisers in order. Raises ``LookupError`` for an unknown name."""
    __traceback_hide__ = True
    for rule in _rules(tuple(names)):
        value = rule(value)
    return value


@lru_cache(maxsize=256)
def _rules(names: tuple[str, ...]) -> tuple[Normaliser, ...]:
    for name in unknown(names):
        raise LookupError(f"{name!r} is no normaliser. There are: {', '.join(NAMES)}.")
    return tuple(_VERSIONS[pinned(name)] for name in names)
