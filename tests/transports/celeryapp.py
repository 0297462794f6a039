"""The Celery app of the worker processes."""

from __future__ import annotations

import os

import django

django.setup()

from celery import Celery  # noqa: E402 - settings first
from kombu import Exchange, Queue  # noqa: E402

QUEUE = os.environ.get("CHILD_QUEUE", "celery")
#: Made by outbox_topology. Celery has to know its kind: quorum queues have no global prefetch.
KIND = {"x-queue-type": os.environ.get("CHILD_QUEUE_TYPE", "quorum")}

app = Celery("tests.transports", broker=os.environ["CHILD_BROKER"], backend=None)
app.conf.update(
    task_default_queue=QUEUE,
    task_queues=[
        Queue(QUEUE, Exchange(""), routing_key=QUEUE, no_declare=True, queue_arguments=KIND)
    ],
    task_create_missing_queues=False,
    worker_prefetch_multiplier=4,
    worker_lost_wait=1,  # seconds until a killed process counts as lost: ten, unless told
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    broker_connection_retry_on_startup=True,
    imports=["tests.transports.tasks", "django_outbox.tasks"],
)
if tasks := os.environ.get("CHILD_DB_REUSE_MAX"):
    # For how many tasks Celery keeps a connection to the database: one, unless told.
    app.conf.CELERY_DB_REUSE_MAX = int(tasks)


@app.on_after_finalize.connect
def _register(sender: Celery, **kwargs: object) -> None:
    from tests.transports.tasks import BookInvoice

    sender.register_task(BookInvoice())
