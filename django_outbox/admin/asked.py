"""What a list is asked for: state, topic, error, time, and whose messages. Read from the query string.

The list, the confirmation page and the actions read the same text, so that an action takes what the
list has shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from django_outbox.admin.states import State
from django_outbox.event_types.registry import all_event_types
from django_outbox.models import OutboxMessageQuerySet
from django_outbox.operations.selection import Selection
from django_outbox.times import local, shown
from django_outbox.topics import pattern_regex

#: Tags are separated by it in the query string; none contains it.
_BETWEEN_TAGS = ","


@dataclass(frozen=True, slots=True)
class Asked:
    """Which messages somebody wants to see. What is not given narrows nothing."""

    state: State | None = None
    topic: str = ""
    """A pattern, as in routes."""
    error: str = ""
    """Contained in the last error."""
    since: datetime | None = None
    until: datetime | None = None
    """Times of creation."""
    aggregate_type: str = ""
    aggregate_id: str = ""
    correlation_id: str = ""
    tags: tuple[str, ...] = field(default=(), repr=False)
    """Blind tags of a person's value; the value itself never gets here."""

    def narrow(self, messages: OutboxMessageQuerySet) -> OutboxMessageQuerySet:
        """Those of the messages that are asked for."""
        selection = Selection(
            topics=(self.topic,) if self.topic else (),
            error=self.error,
            created_after=self.since,
            created_before=self.until,
            index_tags=self.tags,
        )
        found = self.of_one_thing(messages).filter(*selection.conditions())
        return found if self.state is None else self.state.messages(found)

    def of_one_thing(self, messages: OutboxMessageQuerySet) -> OutboxMessageQuerySet:
        """Those of the messages that are of the aggregate and the request, where one is named."""
        names = ("aggregate_type", "aggregate_id", "correlation_id")
        return messages.filter(**{name: value for name in names if (value := getattr(self, name))})

    @property
    def is_searched(self) -> bool:
        """Whether an index leads to the few messages of one thing, request or person."""
        return bool(self.aggregate_id or self.correlation_id or self.tags)

    @property
    def is_sifted(self) -> bool:
        """Whether something is asked for that no index knows."""
        return bool(self.topic or self.error or self.since or self.until)

    def parts(self) -> Iterator[tuple[str, str, str]]:
        """For people: the parameter's name, what it is, and its value. Of a person no value."""
        if self.state is not None:
            yield "state", str(_("State")), str(self.state.label)
        if self.topic:
            yield "topic", str(_("Topic")), self.topic
        if self.error:
            yield "error", str(_("Error")), self.error
        if self.since is not None:
            yield "since", str(_("Created since")), shown(self.since)
        if self.until is not None:
            yield "until", str(_("Created before")), shown(self.until)
        if self.aggregate_id:
            yield "aggregate", str(_("Aggregate")), self._aggregate
        if self.correlation_id:
            yield "correlation", str(_("Correlation id")), self.correlation_id
        if self.tags:
            yield "tag", str(_("Person")), str(_("the one whose value was searched for"))

    def describe(self) -> str:
        """For people, in one line."""
        return "; ".join(f"{name}: {value}" for _name, name, value in self.parts()) or str(
            _("all messages")
        )

    @property
    def _aggregate(self) -> str:
        if self.aggregate_type or ":" in self.aggregate_id:
            return f"{self.aggregate_type}:{self.aggregate_id}"
        return self.aggregate_id

    def query_string(self, **changes: Any) -> str:
        """The query string that asks for this, with some of it changed; None takes a part out."""
        params: dict[str, Any] = {
            "state": self.state,
            "topic": self.topic,
            "error": self.error,
            "since": self.since and _as_input(self.since),
            "until": self.until and _as_input(self.until),
            "aggregate": self._aggregate,
            "correlation": self.correlation_id,
            "tag": _BETWEEN_TAGS.join(self.tags),
        }
        made = QueryDict(mutable=True)
        made.update({name: str(value) for name, value in (params | changes).items() if value})
        return f"?{made.urlencode()}"


class AskedForm(forms.Form):
    """The query string of the list. Its times are in the current time zone."""

    state = forms.ChoiceField(required=False, choices=[("", ""), *State.choices])
    topic = forms.CharField(
        required=False,
        max_length=255,
        label=_("Topic"),
        widget=forms.TextInput(attrs={"list": "outbox-topics", "placeholder": "invoice.*"}),
    )
    error = forms.CharField(required=False, max_length=255, label=_("Error contains"))
    since = forms.DateTimeField(
        required=False,
        label=_("Created since"),
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )
    until = forms.DateTimeField(
        required=False,
        label=_("Created before"),
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )
    aggregate = forms.CharField(required=False, max_length=360)
    correlation = forms.CharField(required=False, max_length=255)
    tag = forms.CharField(required=False, max_length=2000)

    def clean_topic(self) -> str:
        """A pattern, with the meaning that it has in routes."""
        pattern: str = self.cleaned_data["topic"]
        if pattern:
            try:
                pattern_regex(pattern)
            except ValueError as error:
                raise ValidationError(str(error)) from None
        return pattern

    def asked(self) -> Asked | None:
        """What is asked for, or None where the form is not valid."""
        if not self.is_valid():
            return None
        clean = self.cleaned_data
        aggregate_type, aggregate_id = split_aggregate(clean["aggregate"])
        return Asked(
            state=State(clean["state"]) if clean["state"] else None,
            topic=clean["topic"],
            error=clean["error"],
            since=clean["since"],
            until=clean["until"],
            aggregate_type=aggregate_type,
            aggregate_id=aggregate_id,
            correlation_id=clean["correlation"],
            tags=tuple(tag for tag in clean["tag"].split(_BETWEEN_TAGS) if tag),
        )

    def filters(self) -> list[forms.BoundField]:
        """The fields that people fill in; the others come from links and from the search."""
        return [self[name] for name in ("topic", "error", "since", "until")]

    def carried(self) -> list[tuple[str, str]]:
        """What the filter form takes along from where it stands."""
        names = ("state", "aggregate", "correlation", "tag")
        return [(name, value) for name in names if (value := self.data.get(name))]

    @staticmethod
    def topics() -> list[str]:
        """The registered topics, to choose from."""
        return sorted({each.topic for each in all_event_types()})


#: The parameters that are ours.
PARAMETERS = frozenset(AskedForm.base_fields)


def split_aggregate(text: str) -> tuple[str, str]:
    """Type and id out of ``type:id``. Of a bare id, or ``:id`` where it has a colon, any type."""
    kind, colon, rest = text.partition(":")
    return (kind, rest) if colon and rest else ("", text)


def _as_input(moment: datetime) -> str:
    return local(moment).strftime("%Y-%m-%dT%H:%M:%S")
