"""The JSON view: ``path("health/outbox/", HealthView.as_view())``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import method_decorator
from django.views import View

from django_outbox.contrib.health.looking import look
from django_outbox.databases.borrowing import outside_transactions


class HealthView(View):
    """200 where the outbox is well, 503 where somebody should look at it.

    ``{"status": "ok" or "failing", "troubles": [{"code": …, "text": …}]}``, and with ``show_stats`` what
    ``outbox_stats --json`` prints under ``"stats"``: counts, relays by host name, error classes.
    """

    http_method_names = ["get", "head", "options"]

    database: str | None = None
    """The alias; None: the one that is written to."""
    max_age: timedelta | None = None
    """How long a message may be due; None: ``OUTBOX["ALERT_AGE"]``."""
    max_dead: int | None = None
    """How many messages may be dead; None: any number."""
    require_relay: bool = True
    """Whether a relay has to be alive."""
    show_stats: bool = False
    """Only for those who may know them: the view asks nobody who they are."""

    # A database that is away is an answer here, and no transaction's error.
    @method_decorator(outside_transactions)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response: HttpResponse = super().dispatch(request, *args, **kwargs)  # type: ignore[assignment]
        response["Cache-Control"] = "no-store"
        return response

    def get(self, request: HttpRequest) -> HttpResponse:
        """Look once."""
        stats, found = look(self.database, self.max_age, self.max_dead, self.require_relay)
        answer: dict[str, Any] = {
            "status": "failing" if found else "ok",
            "troubles": [{"code": each.code, "text": each.text} for each in found],
        }
        if self.show_stats:
            answer["stats"] = stats and stats.as_json()
        return JsonResponse(answer, status=503 if found else 200)
