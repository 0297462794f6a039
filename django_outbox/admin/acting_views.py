"""The confirmation page of an act, and the act."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _

from django_outbox.admin.acting import Chosen, ReasonForm, carry_out, preview
from django_outbox.admin.acts import ACTS, Act
from django_outbox.admin.asked import Asked, AskedForm
from django_outbox.admin.audit import note_each, note_everything

if TYPE_CHECKING:
    from django_outbox.admin.messages import OutboxMessageAdmin

#: Messages that a confirmation shows by name.
_NAMED = 20


def act(admin: OutboxMessageAdmin, request: HttpRequest, name: str) -> HttpResponse:
    """Ask, or, where the answer has come with a reason, do it. Only by POST."""
    if name not in ACTS:
        raise Http404
    if request.method != "POST":
        # A login in between has lost the form: back to the list, where it can be asked for again.
        return HttpResponseRedirect(_list(admin))
    chosen_act = ACTS[name]
    if "confirmed" not in request.POST:
        return ask(admin, request, chosen_act)
    form = ReasonForm(request.POST)
    if not form.is_valid():
        return ask(admin, request, chosen_act, form)
    return _do(admin, request, chosen_act, form.cleaned_data["reason"])


def ask(
    admin: OutboxMessageAdmin, request: HttpRequest, act: Act, form: ReasonForm | None = None
) -> HttpResponse:
    """The page that says how many and of what, and asks for a reason."""
    if not admin.may(request, act.name):
        raise PermissionDenied
    all_messages = admin.get_queryset(request)
    chosen = _chosen(request, act).bounded(all_messages)
    named = [] if chosen.asked else chosen.named(all_messages)[:_NAMED]
    context = {
        "title": act.title,
        "act": act,
        "chosen": chosen,
        "parts": [] if chosen.asked is None else list(chosen.asked.parts()),
        "preview": preview(act, chosen, all_messages),
        "named": named,
        "form": form or ReasonForm(),
        "back": _back(admin, request, chosen),
        "from_page": request.POST.get("from_page", ""),
        "list_query": request.POST.get("list_query", request.GET.urlencode()),
    }
    return admin.respond(request, "confirm.html", context)


def _do(admin: OutboxMessageAdmin, request: HttpRequest, act: Act, reason: str) -> HttpResponse:
    if not admin.may(request, act.name):
        raise PermissionDenied
    all_messages = admin.get_queryset(request)
    chosen = _chosen(request, act)
    # Noted before it is done: what cannot be noted does not happen.
    if chosen.asked is None:
        taken = list(chosen.named(all_messages).filter(act.takeable))
        note_each(request, taken, str(act.title), reason)
    else:
        which = _("everything that matches: %(which)s") % {"which": chosen.asked.describe()}
        note_everything(request, which, str(act.title), reason)
    done = carry_out(act, chosen, all_messages, reason)
    level = messages.SUCCESS if done.changed else messages.WARNING
    admin.message_user(request, act.said(done), level)
    return HttpResponseRedirect(_back(admin, request, chosen))


def _chosen(request: HttpRequest, act: Act) -> Chosen:
    if request.POST.get("select_across") == "1" and "asked" not in request.POST:
        # Django's own "select all": what the list's address asks for.
        chosen = Chosen(asked=AskedForm(request.GET).asked() or Asked())
    else:
        chosen = Chosen.read(request.POST)
    if chosen.asked is not None and chosen.asked.state not in act.offered_on:
        # Besides being none of our forms: no index would lead to what is in two states at once.
        raise BadRequest(f"{act.name}: not for everything of that state")
    return chosen


def _back(admin: OutboxMessageAdmin, request: HttpRequest, chosen: Chosen) -> str:
    if request.POST.get("from_page") and len(chosen.ids) == 1:
        name = "admin:django_outbox_outboxmessage_change"
        return reverse(name, args=chosen.ids, current_app=admin.admin_site.name)
    if chosen.asked is not None:
        return f"{_list(admin)}{chosen.asked.query_string()}"
    # From the list's own form the address has the filter; from the confirmation a field has it.
    query = request.POST.get("list_query", request.GET.urlencode())
    asked = AskedForm(QueryDict(query.lstrip("?"))).asked()
    return _list(admin) if asked is None else f"{_list(admin)}{asked.query_string()}"


def _list(admin: OutboxMessageAdmin) -> str:
    name = "admin:django_outbox_outboxmessage_changelist"
    return reverse(name, current_app=admin.admin_site.name)
