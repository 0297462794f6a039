"""The example's whole life with a rare name, run as a process of its own; everything it leaves is kept.

Run by test_nothing_personal.py. Writes into LEAKS_FOLDER what others could see: tables, logs at DEBUG,
the admin's pages, dumps, error pages. The database and the broker come from the environment, as for
the example itself.
"""

from __future__ import annotations

import io
import logging
import os
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

FOLDER = Path(os.environ.get("LEAKS_FOLDER", "."))
NAME, MAIL, TAX_ID = "Zyxwvu Qrstuv", "zyxwvu.qrstuv@example.com", "98765 432109"


def main() -> None:
    import django

    # Not at import: the test reads the names from here, and its other children keep their settings.
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"
    django.setup()
    from django.core.management import call_command

    logging.getLogger().addHandler(logging.FileHandler(FOLDER / "debug.log"))
    logging.getLogger().setLevel(logging.DEBUG)
    for name in ("django_outbox", "django", "django.db.backends", "pika"):
        logging.getLogger(name).setLevel(logging.DEBUG)
        logging.getLogger(name).propagate = True
    call_command("migrate", verbosity=0)
    call_command("outbox_topology", stdout=io.StringIO())
    live()
    fail()
    call_command("outbox_relay", "--once", stdout=io.StringIO())
    look_at_the_admin()
    dump()


def customer():
    """Read from its row each time, so that no variable of this script holds a name."""
    from example_project.billing.models import Customer

    return Customer.objects.get(tax_id=TAX_ID)


def live() -> None:
    """Invoices issued; the first is consumed here as the ledger does it."""
    from django_outbox.testing import Outbox
    from example_project.billing.models import Customer
    from example_project.billing.services import draw_up_invoice, issue_invoice

    Customer.objects.create(name=NAME, email=MAIL, tax_id=TAX_ID)
    for _ in range(2):
        issue_invoice(draw_up_invoice(customer(), [("Work", 1, Decimal(10))]).pk)
    assert Outbox().drain(), "the ledger has booked them"
    issue_invoice(draw_up_invoice(customer(), [("Work", 1, Decimal(10))]).pk)


def fail() -> None:
    """Events that are refused, and a handler that raises: with the page that DEBUG shows."""
    from django.db import transaction

    from django_outbox import Message, enqueue
    from django_outbox.consumers import Consumer, process_once
    from django_outbox.models import OutboxMessage

    def wrong_payload():
        return {"invoice_id": 1, "customer": {"id": "x", "name": customer().name, "tax_id": None}}

    with error_page("refused"), transaction.atomic():
        enqueue("invoice.issued", wrong_payload())
    with error_page("not_json"), transaction.atomic():
        enqueue("invoice.issued", {**wrong_payload(), "total": object()})
    row = OutboxMessage.objects.order_by("id").last()

    def stumble(message: Message) -> None:
        assert NAME_IS_READABLE(message)
        raise ValueError("the handler stumbles")

    def received(**changes: object) -> Message:
        import json

        given = {"id": row.message_id, "topic": row.topic, "body": json.dumps(row.payload)}
        return Message(**{**given, **changes})

    with error_page("handler"):
        process_once(Consumer(name="stumbling", handler=stumble), received())
    with error_page("moved"):
        from uuid import uuid4

        process_once(Consumer(name="moved", handler=stumble), received(id=uuid4()))
    with error_page("duplicate"), transaction.atomic():
        twin = customer()
        twin.pk = None
        twin.save(force_insert=True)
    logging.getLogger("leaks").error("%r %r", row, received())


def NAME_IS_READABLE(message) -> bool:
    return message.payload["customer"]["name"].startswith("Zyx")


class error_page:
    """Keeps the page that Django shows for what the block raises, with DEBUG on."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, trace) -> bool:
        from django.views.debug import ExceptionReporter

        assert error is not None, f"{self.name} should have raised"
        reporter = ExceptionReporter(None, kind, error, trace)
        (FOLDER / f"page_{self.name}.html").write_text(reporter.get_traceback_html())
        (FOLDER / f"page_{self.name}.txt").write_text(reporter.get_traceback_text())
        logging.getLogger("leaks").error("It raised.", exc_info=(kind, error, trace))
        return True


def look_at_the_admin() -> None:
    from django.contrib.auth.models import User
    from django.test import Client
    from django.urls import reverse

    from django_outbox.models import OutboxMessage
    from example_project.billing.models import Invoice

    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.create_superuser("admin"))
    pages = [
        reverse("admin:index"),
        reverse("admin:django_outbox_outboxmessage_changelist"),
        reverse("admin:ledger_entry_changelist"),
        reverse("admin:billing_invoice_changelist"),
        *(
            reverse("admin:django_outbox_outboxmessage_change", args=[pk])
            for pk in OutboxMessage.objects.values_list("pk", flat=True)
        ),
        reverse("admin:billing_invoice_change", args=[Invoice.objects.first().pk]),
    ]
    for number, page in enumerate(pages):
        response = client.get(page)
        assert response.status_code in (200, 302), page
        (FOLDER / f"admin_{number}.html").write_bytes(response.content)


def dump() -> None:
    from django.core.management import call_command
    from django.db import connection

    with (FOLDER / "dumpdata.json").open("w") as out:
        call_command("dumpdata", stdout=out)
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT t::text FROM {connection.ops.quote_name(table)} AS t")
            rows = "\n".join(text for (text,) in cursor.fetchall())
            (FOLDER / f"table_{table}.txt").write_text(rows)
    with suppress(Exception):
        call_command("outbox_stats", stdout=io.StringIO())


if __name__ == "__main__":
    main()
