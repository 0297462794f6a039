import pytest

from django_outbox.models import OutboxMessage
from tests.conftest import EVERY_DATABASE


@pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)
def test_the_database_fills_in_status_and_times(database):
    import uuid

    m = OutboxMessage.objects.create(message_id=uuid.uuid4(), topic="a.b", payload={"x": 1})
    m.refresh_from_db()
    assert (m.status, m.attempts) == ("pending", 0)
    assert m.available_at == m.created_at
    assert OutboxMessage.objects.due().count() == 1
