"""The outbox in Django's admin. Imported by the admin's autodiscovery."""

from django_outbox.admin.messages import OutboxMessageAdmin

__all__ = ["OutboxMessageAdmin"]
