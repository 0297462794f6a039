"""The Celery app of worker processes that receive events beside their tasks."""

from __future__ import annotations

import os

from celery import Celery
from kombu import Queue

from django_outbox.contrib.celery import install

QUEUE = os.environ["CHILD_QUEUE"]

# As in a project: the app is made and the receiver installed before Django's apps are loaded.
app = Celery("tests.transports", broker=os.environ["CHILD_BROKER"], backend=None)
app.conf.update(
    task_default_queue=f"tasks.{QUEUE}",
    task_queues=[Queue(f"tasks.{QUEUE}", auto_delete=True)],
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    broker_connection_retry_on_startup=True,
    imports=["tests.transports.tasks"],
)
install(app, queues=[QUEUE], consumers=[os.environ.get("CHILD_CONSUMER", "ledger")])
