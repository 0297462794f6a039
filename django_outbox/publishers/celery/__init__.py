"""Publish to Celery workers: each message becomes a call of a task, by the task's name alone."""

from django_outbox.publishers.celery.publisher import CeleryPublisher

__all__ = ["CeleryPublisher"]
