"""Routes: which publisher a topic goes to, and how strictly its order is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from django_outbox.topics import TopicSelection, matches


class Ordering(StrEnum):
    """What holds between messages of one aggregate."""

    STRICT = "strict"
    """At most one of them is in flight; the next follows its confirm."""
    RELAXED = "relaxed"
    """Claimed in order and sent without waiting; order can break when one fails."""
    NONE = "none"
    """Nothing is held back."""


class OnDead(StrEnum):
    """What a dead message means to its successors in the aggregate."""

    PASS = "pass"  # noqa: S105 - a word of ours, no password
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Route:
    """One line of ``OUTBOX["ROUTES"]``. The first route whose pattern matches is taken."""

    pattern: str
    publisher: str = "default"
    ordering: Ordering = Ordering.STRICT
    on_dead: OnDead = OnDead.PASS


@dataclass(frozen=True)
class Routes:
    """All routes in order."""

    routes: tuple[Route, ...]

    def route_for(self, topic: str) -> Route | None:
        """The first route that matches, or None."""
        return _first_match(self.routes, topic)

    def topics_by_ordering(self, ordering: Ordering) -> TopicSelection:
        """The topics that are routed with this ordering."""
        return self._select([route.ordering is ordering for route in self.routes])

    def topics_blocked_by_dead(self) -> TopicSelection:
        """The topics whose dead messages hold back their successors."""
        return self._select([route.on_dead is OnDead.BLOCK for route in self.routes])

    def topics_of(self, publishers: Sequence[str]) -> TopicSelection:
        """The topics that go to one of these publishers."""
        return self._select([route.publisher in publishers for route in self.routes])

    def _select(self, chosen: Sequence[bool]) -> TopicSelection:
        if not any(chosen):
            return TopicSelection(default=False)
        rules = tuple((r.pattern, c) for r, c in zip(self.routes, chosen, strict=True))
        return TopicSelection(rules, default=False)


@lru_cache(maxsize=4096)
def _first_match(routes: tuple[Route, ...], topic: str) -> Route | None:
    return next((route for route in routes if matches(route.pattern, topic)), None)
