"""``manage.py outbox_demo``: see ``billing/demo.py``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from example_project.billing import demo

NEXT = """
   Look at it    {run} createsuperuser
                 {run} runserver
                 and http://127.0.0.1:8000/admin/: messages, inbox, ledger, invoices. Issue the
                 draft that is left over from step 3, then
                 {run} outbox_relay --once
   RabbitMQ      put OUTBOX_BROKER_URL=amqp://guest:guest@127.0.0.1:5672/%2F into .env, then
                 {run} outbox_topology
                 {run} outbox_relay
                 {run} outbox_consume --queue ledger
   PostgreSQL    put DATABASE_URL=postgres://user:password@127.0.0.1:5432/name into .env, then
                 {install}
                 {run} outbox_demo
"""


class Command(BaseCommand):
    help = "Show the life of a message: enqueued, claimed, published, handled, duplicate dropped."

    def handle(self, *args: Any, **options: Any) -> None:
        self.title("1. Migrate")
        demo.migrate(self.say)
        self.title("2. Commit an invoice and its event in one transaction")
        enqueued = demo.commit(self.say)
        self.title("3. Issue another one, and roll back")
        demo.roll_back(self.say)
        self.title("4. Run the relay: claim, publish, settle")
        sent = demo.relay(self.say)
        self.title("5. Let the message arrive a second time")
        for message in sent:
            if message.id == enqueued.message_id:
                demo.duplicate(self.say, message)
        self.title("6. Read what was written, without the keys and with them")
        demo.sealed(self.say, enqueued)
        self.title("What to try next")
        self.stdout.write(NEXT.strip("\n").format(**_words()))

    def title(self, text: str) -> None:
        self.stdout.write(f"\n{self.style.MIGRATE_HEADING(text)}")

    def say(self, what: str, told: str) -> None:
        self.stdout.write(f"   {self.style.SUCCESS(f'{what:<18}')} {told}")


def _words() -> dict[str, str]:
    """How this command was started, so that the next ones can be started the same way."""
    if "UV" in os.environ:
        run, install = "uv run --no-dev manage.py", "uv pip install 'psycopg[binary]'"
    else:
        python = os.path.relpath(sys.executable)
        run = f"{python} {Path(sys.argv[0]).name}"
        install = f"{python} -m pip install 'psycopg[binary]'"
    return {"run": run, "install": install}
