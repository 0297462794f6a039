"""What encryption costs, each figure against the same thing in clear (or by Fernet).

    python -m tests.benchmarks.bench_encryption [--rows 5000] [--lookups 100000] [--rounds 15]

The ways take turns in short rounds, so that a machine that slows down slows all of them; printed are
the fastest times and the ratio between them. ``TEST_DEFAULT_DATABASE`` chooses the database.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable
from typing import Any

import django
from cryptography.fernet import Fernet

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.conf import settings
from django.db import connection, connections, transaction
from django.test.utils import setup_databases, teardown_databases

from django_outbox import enqueue
from django_outbox.event_types import event_type
from tests.encryptionapp.models import Customer, Everything, Twin

VALUE = "12345678901"


def fastest(ways: dict[str, Callable[[], Any]], rounds: int, turns: int) -> dict[str, float]:
    """Seconds a turn, the least of all rounds."""
    times = dict.fromkeys(ways, float("inf"))
    gc.disable()
    try:
        for _ in range(rounds):
            for name, way in ways.items():
                begin = time.perf_counter()
                for _ in range(turns):
                    way()
                times[name] = min(times[name], (time.perf_counter() - begin) / turns)
    finally:
        gc.enable()
    return times


def field_against_fernet(rounds: int) -> None:
    """The whole path of a field: type, key, tag, seal, text; and back."""
    field: Any = Everything._meta.get_field("char")
    indexed: Any = Customer._meta.get_field("tax_id")
    fernet = Fernet(Fernet.generate_key())
    # What Django hands to fields; the global of this name is a proxy to it.
    real = connections["default"]

    def bare() -> None:
        field.from_db_value(field.get_db_prep_value(VALUE, real), None, real)

    def with_index() -> None:
        indexed.from_db_value(indexed.get_db_prep_value(VALUE, real), None, real)

    def by_fernet() -> None:
        fernet.decrypt(fernet.encrypt(VALUE.encode())).decode()

    times = fastest({"field": bare, "indexed field": with_index, "Fernet": by_fernet}, rounds, 500)
    print(f"seal and open one value ({len(VALUE)} characters)")
    for name, seconds in times.items():
        print(f"  {name:<22}{seconds * 1e6:8.2f} µs   {seconds / times['Fernet']:.2f} of Fernet")


def iterating(rows: int, rounds: int) -> None:
    """Rows with one encrypted column, as instances."""
    Everything.objects.bulk_create([Everything(text=VALUE) for _ in range(rows)], batch_size=500)
    Twin.objects.bulk_create([Twin(notes=VALUE) for _ in range(rows)], batch_size=500)
    ways: dict[str, Callable[[], Any]] = {
        "plain": lambda: list(Twin.objects.only("notes")),
        "encrypted": lambda: list(Everything.objects.only("text")),
        "plain values": lambda: list(Twin.objects.values_list("notes")),
        "encrypted values": lambda: list(Everything.objects.values_list("text")),
    }
    times = fastest(ways, rounds, 1)
    print(f"iterate {rows:,} rows with one such column")
    for name, seconds in times.items():
        base = times["plain values" if name.endswith("values") else "plain"]
        print(f"  {name:<22}{seconds * 1e3:8.1f} ms   {seconds / base:.2f} of plain")


def looking_up(rows: int, rounds: int) -> None:
    """One row by an indexed column, and by a blind index, each among so many."""
    for model in (Customer, Twin):
        model.objects.all().delete()
        for begin in range(0, rows, 1000):
            numbers = range(begin, min(begin + 1000, rows))
            model.objects.bulk_create([model(tax_id=f"{n:011d}") for n in numbers])
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("VACUUM ANALYZE encryptionapp_customer, encryptionapp_twin")
    wanted = f"{rows // 2:011d}"
    ways: dict[str, Callable[[], Any]] = {
        "plain index": lambda: Twin.objects.only("pk").get(tax_id=wanted),
        "blind index": lambda: Customer.objects.only("pk").get(tax_id=wanted),
    }
    times = fastest(ways, rounds, 50)
    print(f"look one row up among {rows:,}")
    for name, seconds in times.items():
        print(
            f"  {name:<22}{seconds * 1e6:8.0f} µs   {seconds / times['plain index']:.2f} of plain"
        )


def sealing_members(rounds: int) -> None:
    """What sealing two members adds to an enqueue, with its transaction and without."""
    payload = {"id": 7, "total": "10.00", "customer": {"name": "Ayse Yilmaz", "tax_id": VALUE}}
    topics = {"two clear members": "clear.registered", "two sealed members": "sealed.registered"}
    for topic in topics.values():
        marked = {"type": "string", "x-gdpr-sensitive": topic.startswith("sealed")}
        customer = {"type": "object", "properties": {"name": marked, "tax_id": marked}}
        members = {"id": {"type": "integer"}, "total": {"type": "string"}, "customer": customer}
        schema = {"type": "object", "properties": members, "required": [*members]}
        event_type(topic)(type(topic, (), {"schema": schema}))

    def enqueuing(topic: str) -> Callable[[], Any]:
        return lambda: enqueue(topic, payload, aggregate=("customer", 7), sequence=1)

    def committing(topic: str) -> Callable[[], Any]:
        return transaction.atomic()(enqueuing(topic))

    def compare(what: str, make: Callable[[str], Callable[[], Any]]) -> None:
        # Many short rounds: what waits for a busy server in one finds it idle in another.
        ways = {name: make(topic) for name, topic in topics.items()}
        times = fastest(ways, rounds * 20, 4)
        print(what)
        for name, seconds in times.items():
            ratio = seconds / times["two clear members"]
            print(f"  {name:<22}{seconds * 1e6:8.0f} µs   {ratio:.2f} of clear")

    compare("enqueue an event and commit", committing)
    with transaction.atomic():
        compare("enqueue an event, in a transaction that is open", enqueuing)
        transaction.set_rollback(True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--lookups", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    settings.DEBUG = False
    made = setup_databases(verbosity=0, interactive=False)
    try:
        print(f"on {connection.vendor}")
        field_against_fernet(options.rounds * 4)
        sealing_members(options.rounds * 2)
        iterating(options.rows, options.rounds)
        looking_up(options.lookups, options.rounds)
    finally:
        connections.close_all()
        teardown_databases(made, verbosity=0)


if __name__ == "__main__":
    main()
