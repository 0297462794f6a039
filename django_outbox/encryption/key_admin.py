"""The keys in the admin: which there are, in which state, and on request how many values name each."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from django_outbox.encryption import key_report
from django_outbox.encryption.models import KeyFingerprint


class KeyFingerprintAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic in the stubs only
    """A report instead of a list. Permission: ``view_keyfingerprint``; no key and no value is shown.

    Counting reads every sealed value of every source, so it happens by a POST alone.
    """

    def get_urls(self) -> list[Any]:
        """The report, and nothing else: rows of this table are not for people."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        path, *_ = [each for each in super().get_urls() if each.name == name]
        return [path]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """What ``outbox_keys status`` tells; the counts where they were asked for."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        is_counted = request.method == "POST"
        report = key_report.collect(count=is_counted)
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": self.opts.verbose_name_plural,
            "rings": [(name, list(keys.items())) for name, keys in report.keys.items()],
            "values": [
                (source, using, counted)
                for source, by_database in report.values.items()
                for using, counted in by_database.items()
            ],
            "problems": report.problems,
            "is_counted": is_counted,
            **(extra_context or {}),
        }
        template = "admin/django_outbox_encryption/keyfingerprint/change_list.html"
        return TemplateResponse(request, template, context)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Fingerprints are recorded when a key is first used."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """They are what they are."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Without them another key could take a known id."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """By its own permission; the right to change is not given to anybody."""
        return request.user.has_perm(f"{self.opts.app_label}.view_{self.opts.model_name}")


def register(site: admin.AdminSite) -> None:
    """Put the keys on a site: the default one has them, one of your own asks for them."""
    site.register(KeyFingerprint, KeyFingerprintAdmin)
