"""OutboxMessageAdmin: the list of messages, a message's page, and the way to everything else.

Nothing can be edited. The list fetches no payload and counts no table; see docs/howto/admin.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters

from django_outbox.admin import acting_views, dashboard, message_page, searching
from django_outbox.admin.acts import ACTS, Act
from django_outbox.admin.asked import Asked
from django_outbox.admin.message_list import MessageList
from django_outbox.admin.paging import CappedPaginator
from django_outbox.admin.read_only import ReadOnlyAdmin
from django_outbox.admin.states import State, state_of
from django_outbox.databases import outbox_alias
from django_outbox.databases.borrowing import outside_transactions
from django_outbox.models import OutboxMessage, OutboxMessageQuerySet
from django_outbox.times import as_element, in_words

if TYPE_CHECKING:
    from django.contrib.admin.views.main import ChangeList
    from django.urls import URLPattern

#: What a list shows of an error; the message's own page has all of it.
_ERROR_SHOWN = 80


class OutboxMessageAdmin(ReadOnlyAdmin[OutboxMessage]):
    """Permissions: ``view_outboxmessage`` to see, ``requeue_``, ``discard_`` and
    ``replay_outboxmessage`` to act, ``reveal_outboxmessage`` to read personal data."""

    list_display = ("topic_and_id", "state", "aggregate", "timing", "attempts", "error")
    list_display_links = ("topic_and_id",)
    list_per_page = 100
    list_max_show_all = 0
    paginator = CappedPaginator
    actions = ("requeue_selected", "discard_selected", "replay_selected")

    class Media:
        css = {"all": ["django_outbox/admin.css"]}
        js = ["django_outbox/dashboard.js"]

    # What is shown ----------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> OutboxMessageQuerySet:
        """From the database that is written to, without payload and headers."""
        found = cast("OutboxMessageQuerySet", super().get_queryset(request))
        return found.using(outbox_alias()).defer("payload", "headers")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """The list that ends early."""
        return MessageList

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, below the dashboard."""
        context = {
            "title": _("Outbox messages"),
            "can_search_people": searching.people_can_be_searched(),
            "panel_seconds": dashboard.SECONDS,
            **(extra_context or {}),
        }
        response = super().changelist_view(request, context)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            shown = response.context_data.get("cl")
            if isinstance(shown, MessageList):
                response.context_data["everything"] = self._acts_on_everything(request, shown)
        return response

    def _acts_on_everything(self, request: HttpRequest, shown: MessageList) -> list[Act]:
        if not shown.result_count:
            return []
        return [
            act
            for act in ACTS.values()
            if shown.asked.state in act.offered_on and self.may(request, act.name)
        ]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The page of one message."""
        if request.method not in {"GET", "HEAD"} or not self.has_view_permission(request):
            raise PermissionDenied
        message = message_page.read(self.get_queryset(request), unquote(object_id))
        if message is None:
            self.message_user(request, _("There is no such message."), messages.WARNING)
            return HttpResponseRedirect(
                reverse(
                    "admin:django_outbox_outboxmessage_changelist",
                    current_app=self.admin_site.name,
                )
            )
        return message_page.respond(self, request, message, extra_context or {})

    def get_urls(self) -> list[URLPattern]:
        """Django's, and before them the dashboard, the search, the acts and the reveal."""
        return [
            self._path("dashboard/", dashboard.page, "dashboard"),
            self._path("dashboard/panel/", dashboard.panel, "panel"),
            self._path("search/", searching.search, "search"),
            self._path("act/<slug:name>/", acting_views.act, "act"),
            self._path("<int:pk>/reveal/", message_page.reveal, "reveal"),
            *super().get_urls(),
        ]

    def _path(self, route: str, view: Callable[..., HttpResponse], name: str) -> URLPattern:
        # What people type here, a person's value or a reason, gets into no error report.
        @sensitive_post_parameters()
        def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponse:
            if not self.has_view_permission(request):
                raise PermissionDenied
            return view(self, request, **kwargs)

        # Chunks commit one by one, and what was noted stays so, also with ATOMIC_REQUESTS.
        guarded = outside_transactions(update_wrapper(wrapper, view))
        guarded = self.admin_site.admin_view(guarded)
        return path(route, guarded, name=f"django_outbox_outboxmessage_{name}")

    def respond(
        self, request: HttpRequest, template: str, context: dict[str, Any]
    ) -> TemplateResponse:
        """A page of the admin."""
        request.current_app = self.admin_site.name
        shared = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
        }
        return TemplateResponse(
            request, f"admin/django_outbox/outboxmessage/{template}", shared | context
        )

    # Who may what -----------------------------------------------------------------------------------

    def may(self, request: HttpRequest, what: str) -> bool:
        """Whether the user has the permission ``<what>_outboxmessage``."""
        return request.user.has_perm(f"django_outbox.{what}_outboxmessage")

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        """Named by the action below."""
        return self.may(request, "requeue")

    def has_discard_permission(self, request: HttpRequest) -> bool:
        """Named by the action below."""
        return self.may(request, "discard")

    def has_replay_permission(self, request: HttpRequest) -> bool:
        """Named by the action below."""
        return self.may(request, "replay")

    # Columns ----------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("message"))
    def topic_and_id(self, message: OutboxMessage) -> SafeString:
        """The topic, and below it the message id."""
        return format_html(
            '{} <span class="outbox-id">{}</span>', message.topic, message.message_id
        )

    @admin.display(description=gettext_lazy("state"))
    def state(self, message: OutboxMessage) -> SafeString:
        """As a badge."""
        state = state_of(message)
        return format_html('<span class="outbox-state outbox-{}">{}</span>', state, state.label)

    @admin.display(description=gettext_lazy("aggregate"), empty_value="-")
    def aggregate(self, message: OutboxMessage) -> SafeString | str:
        """Type and id, with a link to all messages of the aggregate."""
        if not message.aggregate_id:
            return ""
        asked = Asked(aggregate_type=message.aggregate_type, aggregate_id=message.aggregate_id)
        name = f"{message.aggregate_type} {message.aggregate_id}".strip()
        return format_html('<a href="{}">{}</a>', asked.query_string(), name)

    @admin.display(description=gettext_lazy("when"))
    def timing(self, message: OutboxMessage) -> SafeString:
        """What counts in the message's state: since when it is due, or when it is tried next."""
        clock = message.clock  # type: ignore[attr-defined]  # annotated
        match state_of(message):
            case State.PUBLISHED:
                words, moment = _("published %(time)s ago"), message.published_at
            case State.DEAD | State.DISCARDED:
                words, moment = _("enqueued %(time)s ago"), message.created_at
            case State.IN_FLIGHT:
                words, moment = _("leased for %(time)s more"), message.lease_expires_at
            case _ if message.available_at > clock:
                words, moment = _("due in %(time)s"), message.available_at
            case _:
                words, moment = _("due for %(time)s"), message.available_at
        assert moment is not None  # noqa: S101 - a constraint of the table, for mypy
        time = in_words(clock - moment)
        return format_html(
            '{}<span class="outbox-note">{}</span>', words % {"time": time}, as_element(moment)
        )

    @admin.display(description=gettext_lazy("last error"))
    def error(self, message: OutboxMessage) -> str:
        """Its beginning."""
        text = message.last_error
        return text if len(text) <= _ERROR_SHOWN else f"{text[:_ERROR_SHOWN]}…"

    # Acts on what is selected -----------------------------------------------------------------------

    @admin.action(description=gettext_lazy("Requeue selected…"), permissions=["requeue"])
    def requeue_selected(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        """Asks first."""
        return acting_views.ask(self, request, ACTS["requeue"])

    @admin.action(description=gettext_lazy("Discard selected…"), permissions=["discard"])
    def discard_selected(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        """Asks first."""
        return acting_views.ask(self, request, ACTS["discard"])

    @admin.action(description=gettext_lazy("Replay selected…"), permissions=["replay"])
    def replay_selected(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        """Asks first."""
        return acting_views.ask(self, request, ACTS["replay"])
