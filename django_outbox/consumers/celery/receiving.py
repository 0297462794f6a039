"""What the worker does with a message before it has a task: nobody's message may end the worker or be lost.

Celery trusts the body of a task message. One that is no list of three ends the whole worker with an
error, and comes back to end the next one; one that cannot be decoded is acknowledged, so it is gone.
Here both are rejected, to the queue's dead-letter exchange. No body is logged: it may hold values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from celery import bootsteps
from celery.worker.strategy import default

from django_outbox.logs import class_name

logger = logging.getLogger("django_outbox.consumers.celery")


def strategy(task: Any, app: Any, consumer: Any, **kwargs: Any) -> Callable[..., Any]:
    """Celery's own strategy for the task, behind a look at the message. Called by the worker."""
    handle = default(task, app, consumer, **kwargs)

    def on_message(message: Any, *args: Any, **kwargs: Any) -> Any:
        fault = _fault(message)
        if not fault:
            try:
                return handle(message, *args, **kwargs)
            except (MemoryError, *consumer.connection_errors):
                raise
            except Exception as error:  # what Celery trips over depends on its version
                if message.acknowledged:
                    raise
                fault = f"the worker cannot make a task of it: {class_name(error)}"
        return _reject(consumer, message, task.name, fault)

    return on_message


class RejectUndecodable(bootsteps.Step):
    """A step of the worker's consumer: what names no task and cannot be decoded is rejected."""

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        consumer.on_decode_error = partial(_on_decode_error, consumer)


def _fault(message: Any) -> str:
    """What is wrong with a task message; empty: nothing that can be seen from here."""
    try:
        body = message.payload
    except Exception as error:  # whatever the decoder of its content type raises
        return f"its body cannot be decoded: {class_name(error)}"
    if isinstance(body, Mapping):
        return "" if "args" in body else "its body has no args"
    if not isinstance(body, list | tuple) or len(body) != 3:
        return "its body is no list of arguments, keywords and options"
    arguments, keywords, options = body
    if not isinstance(arguments, list | tuple) or not isinstance(keywords, Mapping):
        return "its arguments are no list, or its keywords no object"
    if not isinstance(options, Mapping | None):
        return "its options are no object"
    return ""


def _on_decode_error(consumer: Any, message: Any, error: Exception) -> None:
    _reject(consumer, message, "no task", f"its body cannot be decoded: {class_name(error)}")


def _reject(consumer: Any, message: Any, name: str, fault: str) -> None:
    logger.error(
        "%s: a message is rejected to the dead-letter exchange: %s",
        name,
        fault,
        extra={"event": "delivery_rejected", "consumer": name, "reason": fault},
    )
    message.reject_log_error(logger, consumer.connection_errors)
