"""Form fields that leave an unreadable value alone (``ON_ERROR="sentinel"``).

A person sees a mask. A text field can be given a new value in its place; a field of another type is
locked, since its widgets have no way to say "as it was": a checkbox or a number input would post a value
of its own, and the stored one would be gone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django import forms

from django_outbox.encryption.masking import MASK
from django_outbox.encryption.stored import StoredValue

if TYPE_CHECKING:
    _Field = forms.Field
else:
    _Field = object


class MaskingField(_Field):
    """The first base of an encrypted field's form field; the second is Django's."""

    _is_unreadable = False

    def get_bound_field(self, form: Any, field_name: str) -> Any:
        """Django asks here for each form, before it renders or cleans."""
        if isinstance(form.get_initial_for_field(self, field_name), StoredValue):
            self._show_a_mask()
        return super().get_bound_field(form, field_name)

    def _show_a_mask(self) -> None:
        # Each form has its own copy of the field.
        self._is_unreadable = True
        takes_text = isinstance(self, forms.CharField) and not isinstance(self, forms.JSONField)
        self.disabled = self.disabled or not takes_text
        # Browsers leave the mask out of a number or e-mail input, or refuse to send it.
        if self.disabled or getattr(self.widget, "input_type", "text") not in ("text", "hidden"):
            self.widget = forms.TextInput()

    def prepare_value(self, value: Any) -> Any:
        """The mask in place of what cannot be read."""
        return MASK if isinstance(value, StoredValue) else super().prepare_value(value)

    def clean(self, value: Any) -> Any:
        """Let the mask through, which ``save_form_data`` knows; anything else is cleaned."""
        __traceback_hide__ = True
        if isinstance(value, StoredValue) or (self._is_unreadable and value == MASK):
            return value
        return super().clean(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether another value was filled in."""
        if isinstance(initial, StoredValue):
            return not self.disabled and data != MASK
        return super().has_changed(initial, data)


def masking(field: Any) -> Any:
    """The form field, made to leave unreadable values alone; None where there is none."""
    if field is not None:
        field.__class__ = _masking_class(field.__class__)
    return field


@lru_cache(maxsize=256)
def _masking_class(field_class: Any) -> Any:
    if issubclass(field_class, MaskingField):
        return field_class
    return type(f"Masking{field_class.__name__}", (MaskingField, field_class), {})
