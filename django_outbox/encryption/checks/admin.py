"""Checks of admin classes: what they would search, filter or sort by tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, Error

from django_outbox.encryption.comparisons import encrypted_field_at
from django_outbox.encryption.fields import EncryptedField


def check_admin(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Every registered admin class, its inlines left out: they neither search nor sort."""
    if not apps.is_installed("django.contrib.admin"):
        return []
    from django.contrib.admin.sites import all_sites  # only where the admin is installed

    return [
        message
        for site in all_sites
        for admin in site._registry.values()
        if app_configs is None or admin.opts.app_config in app_configs
        for message in _check(admin)
    ]


def _check(admin: Any) -> Iterator[CheckMessage]:
    model = admin.model
    for option in ("search_fields", "list_filter", "ordering", "date_hierarchy"):
        entries = getattr(admin, option, None) or ()
        for entry in [entries] if isinstance(entries, str) else entries:
            field = _encrypted(model, entry)
            if field is not None:
                yield admin_compares_tokens(admin, option, field)
    sortable = admin.list_display if admin.sortable_by is None else admin.sortable_by
    for entry in sortable:
        field = _encrypted(model, entry)
        if field is not None:
            yield sortable_column(admin, field)


def _encrypted(model: Any, entry: Any) -> EncryptedField | None:
    """The encrypted field that an entry names, if it does."""
    if isinstance(entry, (list, tuple)):
        entry = entry[0]
    if not isinstance(entry, str):
        return None
    field: EncryptedField | None = encrypted_field_at(model, entry.lstrip("-^=@"))
    return field


def admin_compares_tokens(admin: Any, option: str, field: EncryptedField) -> Error:
    hint = "Use the field's BlindIndexField, or leave it out."
    if option == "search_fields":
        hint = "Use django_outbox.encryption.admin.BlindSearchMixin with blind_search_fields."
    return Error(
        f"{type(admin).__name__}.{option} names {field.name!r}, which is encrypted.",
        hint=hint,
        obj=type(admin),
        id="django_outbox_encryption.E030",
    )


def sortable_column(admin: Any, field: EncryptedField) -> checks.Warning:
    return checks.Warning(
        f"{type(admin).__name__}: the list can be sorted by {field.name!r}, which is encrypted; the"
        " click would be an error.",
        hint="Leave the field out of sortable_by (or list_display).",
        obj=type(admin),
        id="django_outbox_encryption.W030",
    )
