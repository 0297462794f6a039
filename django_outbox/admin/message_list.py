"""The list of messages: Django's, with its own filters, in an order that an index gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_outbox.admin.asked import PARAMETERS, Asked, AskedForm
from django_outbox.admin.paging import COUNTED
from django_outbox.admin.states import State, order_of
from django_outbox.admin.window import Picked, is_indexed, listed, pick, with_state
from django_outbox.models import OutboxMessageQuerySet

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from django_outbox.models import OutboxMessage


class Keys(list[int]):
    """Primary keys, of which Django makes pages as of a queryset."""

    def _clone(self) -> Keys:
        return self


class MessageList(ChangeList):
    """One page of messages; at most three statements, whatever lies in the table."""

    form: AskedForm
    asked: Asked
    is_cut_off: bool
    """Only the rows that come first were looked through: some that match may be missing."""
    picked: Picked | None
    """What was found in the window, where no index knows the list."""

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        """What is left to Django: nothing of ours. It refuses look-ups that ``lookup_allowed`` does."""
        left = super().get_filters_params(params)
        return {name: value for name, value in left.items() if name not in PARAMETERS}

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> QuerySet[OutboxMessage]:
        """What the query string asks for, in its own order. Any other look-up is refused by Django."""
        self.get_filters(request)
        self.filter_specs, self.has_filters, self.has_active_filters = [], False, False
        self.clear_all_filters_qs = "?"
        self.form = AskedForm(request.GET)
        asked = self.form.asked()
        self.asked = asked or Asked()
        self.picked = None
        self.is_cut_off = False
        messages = cast("OutboxMessageQuerySet", self.root_queryset)
        if asked is None:
            return messages.none()
        if not is_indexed(asked):
            self.picked = pick(messages, asked, most=COUNTED)
            self.is_cut_off = self.picked.is_cut_off
            return messages  # of which get_results takes a page of what was picked
        return listed(messages, asked)

    def get_results(self, request: HttpRequest) -> None:
        """A page, and how many there are. The state is annotated to the rows of the page alone."""
        if self.picked is None:
            super().get_results(request)
            page = cast("OutboxMessageQuerySet", self.result_list)
        else:
            page = self._page_of_picked(request, self.picked.ids)
        self.result_list = with_state(page)

    def _page_of_picked(self, request: HttpRequest, ids: list[int]) -> OutboxMessageQuerySet:
        messages = cast("OutboxMessageQuerySet", self.queryset)
        # Django's pages, of the keys; then the rows of these.
        self.queryset = cast("QuerySet[OutboxMessage]", Keys(ids))
        super().get_results(request)
        keys = cast("Keys", self.result_list)
        self.queryset = messages
        order = order_of(None) if self.asked.is_searched else order_of(self.asked.state)
        return messages.filter(pk__in=list(keys)).order_by(*order)

    @property
    def tabs(self) -> list[dict[str, Any]]:
        """A link for each state, which keeps what else is asked for."""
        states: list[State | None] = [None, *State]
        return [
            {
                "label": _("all") if state is None else state.label,
                "meaning": "" if state is None else state.meaning,
                "link": self.asked.query_string(state=state),
                "is_current": self.asked.state is state,
            }
            for state in states
        ]

    @property
    def parts(self) -> list[dict[str, str]]:
        """What is asked for beside the state, each with a link that takes it out."""
        return [
            {"label": label, "value": value, "without": self.asked.query_string(**{name: None})}
            for name, label, value in self.asked.parts()
            if name != "state"
        ]
