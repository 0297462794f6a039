"""Finding a person's messages by the keyed tag of one member, and giving sealed payloads another key."""

import pytest
from django.db import connection, transaction

from django_outbox import enqueue
from django_outbox.encryption.rotation import Task, reencrypt
from django_outbox.event_types import event_type
from django_outbox.event_types.registry import forget_event_type
from django_outbox.event_types.tags import tags_to_search
from django_outbox.exceptions import InvalidIdentifier, InvalidSequence
from django_outbox.models import OutboxMessage, Status
from django_outbox.operations.reencryption import PayloadSource
from tests.conftest import EVERY_DATABASE
from tests.integration.event_types.test_sealing import handled, travelled
from tests.support.isolation import isolation
from tests.support.rows import LIMITS
from tests.support.threads import Worker

__all__ = ["isolation"]

TOPIC = "person.registered"
NEW_KEY = "2027a:primary:o1dJz1bJ4bNq9RkXwzKD8l8Xrme4S8s0mAKK5s0q2Wc="
NEW_INDEX_KEY = "i2:primary:Yb0mQk0lY3l0J3E5cW1sZDhmN2c2aDVqNGszbDJtMW4="
OLD_KEY = "2026a:retired:ViH1cIZhaByRskHXdEwbcC/ihLuaMwu7j3wdF3W6uYs="
OLD_INDEX_KEY = "i1:retired:hxNjGcXajVDc/A5wP1bluaoJpkdkfMCqMZK6Lp0Ep1U="


class PersonRegistered:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "version": {"type": "integer"},
            "person": {
                "type": "object",
                "properties": {"tax_id": {"type": "string", "x-gdpr-sensitive": True}},
            },
        },
    }


@pytest.fixture(autouse=True)
def registered(settings):
    settings.OUTBOX_ENCRYPTION = {
        "KEYRINGS": {
            "default": OLD_KEY.replace("retired", "primary"),
            "index": OLD_INDEX_KEY.replace("retired", "primary"),
        }
    }
    event_type(
        TOPIC,
        index_by="/person/tax_id",
        index_normalisers=("digits",),
        aggregate_id="/id",
        sequence="/version",
    )(PersonRegistered)
    yield
    forget_event_type(TOPIC, 1)


def enqueued(tax_id="123 456", **options):
    with transaction.atomic():
        return enqueue(TOPIC, {"id": 7, "version": 3, "person": {"tax_id": tax_id}}, **options)


def found(value):
    return set(
        OutboxMessage.objects.filter(index_tag__in=tags_to_search(value, "default")).values_list(
            "pk", flat=True
        )
    )


def rotate(settings):
    settings.OUTBOX_ENCRYPTION = {
        "KEYRINGS": {
            "default": f"{NEW_KEY} {OLD_KEY}",
            "index": f"{NEW_INDEX_KEY} {OLD_INDEX_KEY}",
        }
    }


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_a_persons_messages_are_found_without_reading_any(database):
    mine = {enqueued().pk, enqueued("123456").pk}
    enqueued("999999")
    assert found("12-34-56") == mine
    assert found("1") == set()
    tag = OutboxMessage.objects.get(pk=min(mine)).index_tag
    assert tag.startswith("i1:")


def test_an_absent_member_has_no_tag(database):
    with transaction.atomic():
        row = enqueue(TOPIC, {"id": 7, "version": 3})
    assert row.index_tag == ""
    assert found("") == set()


def test_after_a_new_index_key_old_and_new_messages_are_found(database, settings):
    old = enqueued().pk
    rotate(settings)
    new = enqueued().pk
    assert found("123456") == {old, new}


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_payloads_get_another_key_and_still_open(database, settings):
    row = enqueued()
    dead = enqueued("777")
    OutboxMessage.objects.filter(pk=dead.pk).update(status=Status.DEAD)
    source = PayloadSource()
    assert source.census("default").kids == {"2026a": 2}
    rotate(settings)
    assert source.remaining(Task()) == 2
    dry = reencrypt(source, Task(dry_run=True))
    assert (dry.changed, dry.left) == (2, 2)
    done = reencrypt(source, Task(index=True))
    assert (done.changed, done.left, done.failures) == (2, 0, {})
    census = source.census("default")
    assert (census.kids, census.index_kids) == ({"2027a": 2}, {"i2": 2})
    assert found("123456") == {row.pk}
    row.refresh_from_db()
    OutboxMessage.objects.exclude(pk=row.pk).delete()
    assert handled(travelled(row)).payload["person"] == {"tax_id": "123 456"}


def test_a_row_that_a_relay_holds_is_left_to_the_next_pass(database, settings):
    row = enqueued()
    database.claim(LIMITS, "a relay")
    rotate(settings)
    outcome = reencrypt(PayloadSource(), Task())
    assert (outcome.changed, outcome.left) == (0, 1)
    OutboxMessage.objects.filter(pk=row.pk).update(lease_token=None, lease_expires_at=None)
    assert reencrypt(PayloadSource(), Task()).left == 0


@pytest.mark.parametrize("database", ["mysql"], indirect=True)
@pytest.mark.parametrize("isolation", ["repeatable read"], indirect=True)
def test_producers_write_while_payloads_get_another_key(database, isolation, settings):
    for _ in range(20):
        enqueued()
    rotate(settings)

    def produce():
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 2")
        return enqueued("777")

    written = []

    def and_a_producer(execute, sql, params, many, context):
        found = execute(sql, params, many, context)
        if sql.startswith("UPDATE") and not written:
            written.append(Worker(produce).result())
        return found

    with connection.execute_wrapper(and_a_producer):
        assert reencrypt(PayloadSource(), Task()).left == 0
    assert OutboxMessage.objects.filter(pk=written[0].pk).exists()


def test_a_damaged_member_is_reported_and_stays(database, settings):
    row = enqueued()
    payload = row.payload
    payload["person"]["tax_id"]["$jwe"] = payload["person"]["tax_id"]["$jwe"][:-3] + "AAA"
    OutboxMessage.objects.filter(pk=row.pk).update(payload=payload)
    rotate(settings)
    outcome = reencrypt(PayloadSource(), Task())
    assert (outcome.changed, outcome.left) == (0, 1)
    assert outcome.failures == {row.pk: "DecryptionFailed"}
    row.refresh_from_db()
    assert row.payload == payload


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"aggregate": ("person", 8)}, InvalidIdentifier),
        ({"sequence": 4}, InvalidSequence),
    ],
)
def test_a_payload_that_contradicts_its_event_is_refused(database, options, error):
    with transaction.atomic(), pytest.raises(error, match="is not what the payload has at /"):
        enqueue(TOPIC, {"id": 7, "version": 3, "person": {"tax_id": "1"}}, **options)
    assert enqueued(aggregate=("person", 7), sequence=3).sequence == 3
