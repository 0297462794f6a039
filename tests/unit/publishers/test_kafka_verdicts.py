import pytest

from django_outbox.publishers.kafka.verdicts import Meaning, ends_producer, meaning_of

SAYS = {
    "UNKNOWN_TOPIC_OR_PART": (Meaning.REJECTED, False),
    "MSG_SIZE_TOO_LARGE": (Meaning.TOO_LARGE, False),
    "NOT_ENOUGH_REPLICAS": (Meaning.FAILED, False),
    "_ALL_BROKERS_DOWN": (Meaning.DOWN, False),
    "_FATAL": (Meaning.DOWN, True),
    "_MSG_TIMED_OUT": (Meaning.UNKNOWN, True),
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (Meaning.FAILED, True),
    "AN_ERROR_OF_TOMORROW": (Meaning.FAILED, False),
}


@pytest.mark.parametrize(("name", "said"), SAYS.items())
def test_what_an_error_means(name: str, said: tuple[Meaning, bool]):
    assert (meaning_of(name), ends_producer(name)) == said


def test_every_name_is_one_that_the_client_knows():
    client = pytest.importorskip("confluent_kafka")
    from django_outbox.publishers.kafka import verdicts

    names = {*verdicts._BY_NAME, *verdicts._ENDS}
    known = {name for name in vars(client.KafkaError) if name.isupper()}
    assert names <= known
