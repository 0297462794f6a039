"""Celery tasks as consumers: an event's effect takes place once, and no message is lost on the way.

``ConsumerTask`` is the base of such a task, ``ConsumerMixin`` what makes a task class of your own
one. The task takes a ``Message``. It acknowledges after its commit; when it raises it is tried again
with jittered backoff, and in the end its message goes to the dead-letter exchange. A queue without one
has its rejected messages dropped by the broker: see docs/howto/celery.md.
"""

from django_outbox.consumers.celery.task import ConsumerMixin, ConsumerTask

__all__ = ["ConsumerMixin", "ConsumerTask"]
