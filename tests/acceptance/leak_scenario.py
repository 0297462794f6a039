"""The example's whole life with a rare name, run as a process of its own; everything it leaves is kept.

Run by test_nothing_personal.py. Writes into LEAKS_FOLDER what others could see: tables, logs at DEBUG,
the admin's pages, dumps, error pages. The database and the broker come from the environment, as for
the example itself.
"""

from __future__ import annotations

import io
import logging
import os
import re
import threading
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

from tests.support.threads import wait_until

FOLDER = Path(os.environ.get("LEAKS_FOLDER", "."))
NAME, MAIL, TAX_ID = "Zyxwvu Qrstuv", "zyxwvu.qrstuv@example.com", "98765 432109"


def main() -> None:
    import django

    # Not at import: the test reads the names from here, and its other children keep their settings.
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"
    django.setup()
    from django.core.management import call_command
    from django.db import connection

    logging.getLogger().addHandler(logging.FileHandler(FOLDER / "debug.log"))
    logging.getLogger().setLevel(logging.DEBUG)
    for name in ("django_outbox", "django", "django.db.backends", "pika"):
        logging.getLogger(name).setLevel(logging.DEBUG)
        logging.getLogger(name).propagate = True
    call_command("migrate", verbosity=0)
    call_command("outbox_topology", stdout=io.StringIO())
    connection.force_debug_cursor = True  # The log has every statement, with what it was given.
    live()
    fail()
    travel()
    look_at_the_admin()
    run_the_commands()
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


def travel() -> None:
    """Through the broker: one message is consumed, one dead-lettered, one finds no queue at all."""
    import pika
    from django.conf import settings
    from django.core.management import CommandError, call_command
    from django.db import transaction
    from django.test import override_settings

    from django_outbox import enqueue
    from django_outbox.consumers.intake import read_intake
    from django_outbox.consumers.rabbitmq import QueueConsumer
    from django_outbox.event_types import event_type
    from django_outbox.models import OutboxMessage, Status
    from django_outbox.relay.shutdown import Stop
    from example_project.billing.services import draw_up_invoice, issue_invoice

    personal = {"type": "object", "properties": {"name": {"x-gdpr-sensitive": True}}}
    event_type("customer.blocked")(type("CustomerBlocked", (), {"schema": personal}))
    with transaction.atomic():
        enqueue("customer.blocked", {"name": customer().name})
    # Members that belong to another message: the consumer will not open them.
    issue_invoice(draw_up_invoice(customer(), [("Work", 1, Decimal(10))]).pk)
    first, *_, last = OutboxMessage.objects.filter(topic="invoice.issued").order_by("pk")
    moved = {**last.payload, "customer": first.payload["customer"]}
    OutboxMessage.objects.filter(pk=last.pk).update(payload=moved)

    with override_settings(OUTBOX={**settings.OUTBOX, "MAX_ATTEMPTS": 1}), suppress(CommandError):
        # It says that not everything could be published.
        call_command("outbox_relay", "--once", stdout=io.StringIO())
    assert OutboxMessage.objects.filter(topic="customer.blocked", status=Status.DEAD).exists()

    broker = pika.BlockingConnection(pika.URLParameters(os.environ["OUTBOX_BROKER_URL"]))
    look_into(broker, "ledger")
    stop = Stop()
    consumer = threading.Thread(
        target=QueueConsumer(read_intake(["ledger"], [], 10)).run, args=[stop]
    )
    consumer.start()
    try:
        wait_until(lambda: ready(broker, "ledger.dead") == 1, "a message is dead-lettered")
    finally:
        stop.set()
        consumer.join()
    look_into(broker, "ledger.dead")
    broker.close()


def ready(broker, queue: str) -> int:
    return broker.channel().queue_declare(queue, passive=True).method.message_count


def look_into(broker, queue: str) -> None:
    """Keep what is in the queue, properties too, and leave it there."""
    channel = broker.channel()
    found = []
    while (got := channel.basic_get(queue))[0] is not None:
        found.append(f"{vars(got[1])} {got[2]!r}")
    channel.close()
    assert found, f"{queue} is empty"
    (FOLDER / f"queue_{queue}.txt").write_text("\n".join(found))


def look_at_the_admin() -> None:
    """Every page that a link leads to, but for the forms whose permission means to see the values."""
    from django.contrib.auth.models import User
    from django.test import Client, override_settings

    from django_outbox.models import OutboxMessage

    client = Client(SERVER_NAME="localhost", raise_request_exception=False)
    client.force_login(User.objects.create_superuser("admin"))
    waiting, seen = ["/admin/"], set()
    while waiting:
        page = waiting.pop()
        if page in seen or SHOWS_CLEAR_VALUES.match(page):
            continue
        seen.add(page)
        response = client.get(page)
        assert response.status_code in (200, 302), page
        name = re.sub(r"\W+", "_", page)
        (FOLDER / f"admin{name}.html").write_bytes(response.content)
        waiting += re.findall(r'href="(/admin/[^"?#]*)', response.content.decode())
    assert len(seen) > 10
    for pk in OutboxMessage.objects.values_list("pk", flat=True):
        assert f"/admin/django_outbox/outboxmessage/{pk}/change/" in seen

    # What was posted is on the page of an error, if nobody masks it.
    posted = {"name": NAME, "email": MAIL, "tax_id": TAX_ID}
    with override_settings(DEBUG=True, OUTBOX_ENCRYPTION={}):
        response = client.post("/admin/billing/customer/add/", posted)
    assert response.status_code == 500
    (FOLDER / "page_posted.html").write_bytes(response.content)


SHOWS_CLEAR_VALUES = re.compile(
    r"/admin/(logout|password_change|jsi18n|autocomplete|(billing|ledger)/\w+/(\d+|add)|billing/customer)/"
)


def run_the_commands() -> None:
    from django.core.management import CommandError, call_command

    for line in ("outbox_stats", "outbox_keys status", "outbox_reencrypt --index", "check"):
        said = io.StringIO()
        # The message with members that are not its own cannot be sealed anew, and is named.
        with suppress(CommandError):
            call_command(*line.split(), stdout=said, stderr=said)
        (FOLDER / f"command_{line.split()[0]}.txt").write_text(said.getvalue())


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


if __name__ == "__main__":
    main()
