"""Checks of models: what an encrypted column cannot do is said before the migration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.exceptions import FieldDoesNotExist
from django.db.models import NOT_PROVIDED, Model, Q
from django.db.models.constants import LOOKUP_SEP

from django_outbox.encryption import conf, normalisers
from django_outbox.encryption.blind_index import BlindIndexField
from django_outbox.encryption.comparisons import encrypted_field_at
from django_outbox.encryption.fields import EncryptedField
from django_outbox.encryption.registry import blind_indexes, encrypted_fields

#: Options of a field that would compare or compute stored values.
_OPTIONS = ("unique", "db_index", "primary_key", "db_collation")
_UNIQUE_FOR = ("unique_for_date", "unique_for_month", "unique_for_year")


def check_models(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Encrypted fields and blind indexes, model by model."""
    models = [
        model
        for model in apps.get_models()
        if app_configs is None or apps.get_app_config(model._meta.app_label) in app_configs
    ]
    found: list[CheckMessage] = []
    for field in encrypted_fields(models):
        found += _check_options(field)
        found += _check_meta(field)
    for model in models:
        found += _check_ordering(model)
    for index in blind_indexes(models):
        found += _check_index(index)
    found += _check_contexts()
    return found


def _check_options(field: EncryptedField) -> Iterator[CheckMessage]:
    for option in _OPTIONS:
        # ``unique`` is true of a primary key too: one message is enough.
        if getattr(field, f"_{option}" if option == "unique" else option, None):
            yield compares_tokens(field, f"{option}=…")
    for option in _UNIQUE_FOR:
        if getattr(field, option, None):
            yield compares_tokens(field, f"{option}=…")
    if field.db_default is not NOT_PROVIDED:
        yield default_in_clear(field)


def _check_meta(field: EncryptedField) -> Iterator[CheckMessage]:
    meta = field.model._meta
    latest = meta.get_latest_by or ()
    if any(_is_named(field, item) for item in ([latest] if isinstance(latest, str) else latest)):
        yield compares_tokens(field, "Meta.get_latest_by")
    for other in meta.local_fields:
        computed = getattr(other, "expression", None) if other.generated else None
        if not isinstance(other, BlindIndexField) and field.name in _names_in(computed):
            yield compares_tokens(field, f"the generated column {other.name!r}")
    if any(field.name in names for names in meta.unique_together):
        yield compares_tokens(field, "Meta.unique_together")
    for index in meta.indexes:
        named = [name for name, _order in index.fields_orders]
        if any(_is_named(field, item) for item in [*named, *index.expressions]) or _is_compared(
            field, index.condition
        ):
            yield compares_tokens(field, f"index {index.name!r}")
    for constraint in meta.constraints:
        named = [*getattr(constraint, "fields", ()), *getattr(constraint, "expressions", ())]
        if any(_is_named(field, item) for item in named) or _is_compared(
            field, getattr(constraint, "condition", None)
        ):
            yield compares_tokens(field, f"constraint {constraint.name!r}")


def _check_ordering(model: type[Model]) -> Iterator[CheckMessage]:
    for item in model._meta.ordering or ():
        names = [item] if isinstance(item, str) else _names_in(item)
        for name in names:
            field = encrypted_field_at(model, name.lstrip("-+"))
            if field is not None:
                yield compares_tokens(field, f"{model._meta.label}.Meta.ordering")


def _check_index(index: BlindIndexField) -> Iterator[CheckMessage]:
    meta = index.model._meta
    try:
        source: Any = meta.get_field(index.source_name)
    except FieldDoesNotExist:
        source = None
    if not isinstance(source, EncryptedField) or source.model is not index.model:
        yield index_without_source(index)
        return
    if not source.can_be_indexed:
        yield index_of_no_use(index, source)
    twins = [f for f in blind_indexes([index.model]) if f.source_name == index.source_name]
    if twins[0] is not index:
        yield second_index(index, twins[0])
    for name in normalisers.unknown(index.normalisers):
        yield unknown_normaliser(index, name)


def _check_contexts() -> Iterator[CheckMessage]:
    by_context: dict[str, list[EncryptedField]] = defaultdict(list)
    for field in encrypted_fields(apps.get_models()):
        by_context[field.seal_context].append(field)
    for context, fields in by_context.items():
        if len(fields) > 1:
            yield same_context(context, fields)
    if conf.settings_problems():
        return  # Reported by the check of the settings.
    for context in sorted(conf.encryption_settings().allow_plaintext - by_context.keys()):
        yield unknown_context(context)


def _is_named(field: EncryptedField, item: Any) -> bool:
    """Whether an entry of ``fields`` or ``expressions`` speaks of the field."""
    return field.name in ([item.lstrip("-+")] if isinstance(item, str) else _names_in(item))


def _names_in(expression: Any) -> list[str]:
    nodes = expression.flatten() if hasattr(expression, "flatten") else [expression]
    return [node.name for node in nodes if isinstance(getattr(node, "name", None), str)]


def _is_compared(field: EncryptedField, condition: Any) -> bool:
    """Whether a condition asks more of the field than whether it is NULL."""
    if not isinstance(condition, Q):
        return False
    for child in condition.children:
        if isinstance(child, tuple):
            name, _, lookup = child[0].partition(LOOKUP_SEP)
            if name == field.name and lookup != "isnull":
                return True
        elif _is_compared(field, child):
            return True
    return False


def _label(field: Any) -> str:
    model: type[Model] = field.model
    return f"{model._meta.label}.{field.name}"


def compares_tokens(field: EncryptedField, where: str) -> Error:
    return Error(
        f"{_label(field)} is encrypted: {where} would compare tokens, and no two are equal.",
        hint="Use a BlindIndexField for uniqueness and look-ups, another field for order.",
        obj=field,
        id="django_outbox_encryption.E020",
    )


def default_in_clear(field: EncryptedField) -> Error:
    return Error(
        f"{_label(field)}: db_default would be written by the database in clear.",
        hint="Use default=…, which Python seals.",
        obj=field,
        id="django_outbox_encryption.E021",
    )


def same_context(context: str, fields: list[EncryptedField]) -> Error:
    return Error(
        f"{', '.join(map(_label, fields))} have the same context {context!r}: a value of one would"
        " open in the other.",
        hint="Give one of them a context of its own: context=…",
        obj=fields[-1],
        id="django_outbox_encryption.E022",
    )


def index_without_source(index: BlindIndexField) -> Error:
    return Error(
        f"{_label(index)}: {index.source_name!r} is no encrypted field of the same model.",
        hint="A BlindIndexField stands beside the field it indexes.",
        obj=index,
        id="django_outbox_encryption.E023",
    )


def index_of_no_use(index: BlindIndexField, source: EncryptedField) -> Error:
    return Error(
        f"{_label(index)}: values of {type(source).__name__} cannot have a blind index.",
        hint="Two values can be told apart by counting; JSON and bytes have no one spelling.",
        obj=index,
        id="django_outbox_encryption.E024",
    )


def second_index(index: BlindIndexField, first: BlindIndexField) -> Error:
    return Error(
        f"{_label(index)}: {first.name!r} indexes {index.source_name!r} already, and a stored value"
        " holds one tag.",
        hint="Keep one of them.",
        obj=index,
        id="django_outbox_encryption.E025",
    )


def unknown_normaliser(index: BlindIndexField, name: str) -> Error:
    return Error(
        f"{_label(index)}: {name.removesuffix('@1')!r} is no normaliser.",
        hint=f"There are: {', '.join(normalisers.NAMES)}.",
        obj=index,
        id="django_outbox_encryption.E026",
    )


def unknown_context(context: str) -> Error:
    return Error(
        f'OUTBOX_ENCRYPTION["ALLOW_PLAINTEXT"]: {context!r} is no encrypted field.',
        hint="Name fields by their context, mostly app.model.field.",
        id="django_outbox_encryption.E027",
    )
