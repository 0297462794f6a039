"""Exception pages and mails without clear values from frames that are not yours.

``DEFAULT_EXCEPTION_REPORTER_FILTER = "django_outbox.encryption.debug.MaskingReporterFilter"``. Django
prints the variables of every frame: with ``DEBUG`` on the page, without it in the mails to ADMINS. A
value that a form took or a query returned is among them.
"""

from __future__ import annotations

from collections.abc import ItemsView
from types import FrameType
from typing import Any

from django.http import HttpRequest
from django.views.debug import SafeExceptionReporterFilter

from django_outbox.encryption.masking import MASK


class MaskingReporterFilter(SafeExceptionReporterFilter):
    """Masks what was posted, and every variable in frames of Django and of this package.

    Variables of your own frames stay, unless Django's ``sensitive_variables`` hides them; add your
    packages to ``masked_packages`` in a subclass to mask theirs too.
    """

    masked_packages: tuple[str, ...] = ("django", "django_outbox")

    def get_post_parameters(self, request: HttpRequest | None) -> dict[str, Any]:
        """The names, masked."""
        return dict.fromkeys(request.POST, MASK) if request is not None else {}

    def get_traceback_frame_variables(
        self, request: HttpRequest, tb_frame: FrameType
    ) -> ItemsView[str, Any]:
        """As Django has them, or the names alone, masked."""
        package = str(tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in self.masked_packages:
            return dict.fromkeys(tb_frame.f_locals, MASK).items()
        return super().get_traceback_frame_variables(request, tb_frame)
