"""A real RabbitMQ for tests: a virtual host of the session's own, and where that would hurt others
(alarms, limits, being stopped) a whole node of its own.

tests/conftest.py makes the fixtures known.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import UUID, uuid4

import pika
import pytest

from django_outbox.publishers.rabbitmq import RabbitMQPublisher
from tests.support import services
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.proxy import TcpProxy

_LIB = Path("/usr/lib/rabbitmq/bin")


@dataclass
class Broker:
    """One virtual host, with what tests ask of it. Names made here are unique."""

    url: str
    _connection: Any = field(default=None, repr=False)
    _channel: Any = field(default=None, repr=False)

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 5672

    def through(self, proxy: TcpProxy) -> str:
        """The URL of this virtual host by way of the proxy."""
        parts = urlsplit(self.url)
        userinfo = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{userinfo}@127.0.0.1:{proxy.port}"))

    @contextmanager
    def proxy(self) -> Iterator[TcpProxy]:
        """A proxy in front of this broker."""
        with TcpProxy(self.host, self.port) as proxy:
            yield proxy

    @property
    def channel(self) -> Any:
        """A channel for the test itself, made anew where the last one is gone."""
        if self._channel is None or not self._channel.is_open:
            self.disconnect()
            self._connection = pika.BlockingConnection(pika.URLParameters(self.url))
            self._channel = self._connection.channel()
        try:
            self._connection.process_data_events(0)
        except pika.exceptions.AMQPError:
            self._channel = None
            return self.channel
        return self._channel

    def disconnect(self) -> None:
        with suppress(Exception):
            self._connection.close()
        self._connection = self._channel = None

    def exchange(self, kind: str = "topic") -> str:
        """Declare an exchange."""
        name = f"ex.{uuid4().hex[:12]}"
        self.channel.exchange_declare(name, kind, durable=True)
        return name

    def queue(self, exchange: str, *patterns: str, **arguments: Any) -> str:
        """Declare a durable queue bound to the exchange (by ``#`` where no pattern is given)."""
        name = f"q.{uuid4().hex[:12]}"
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.channel.queue_declare(name, durable=True, arguments=named)
        for pattern in patterns or ("#",):
            self.channel.queue_bind(name, exchange, pattern)
        return name

    def remove(self, exchange: str, *queues: str) -> None:
        """Delete what was declared, where the virtual host outlives the test."""
        for queue in queues:
            self.channel.queue_delete(queue)
        self.channel.exchange_delete(exchange)

    def count(self, queue: str) -> int:
        """How many messages are ready in the queue."""
        ready: int = self.channel.queue_declare(queue, passive=True).method.message_count
        return ready

    def take(self, queue: str) -> list[tuple[Any, bytes]]:
        """Take everything out of the queue, as (properties, body)."""
        taken = []
        while True:
            method, properties, body = self.channel.basic_get(queue, auto_ack=True)
            if method is None:
                return taken
            taken.append((properties, body))

    def ids(self, queue: str) -> list[UUID]:
        """Take everything out of the queue, as message ids."""
        return [UUID(properties.message_id) for properties, _ in self.take(queue)]


@pytest.fixture(scope="session")
def rabbitmq_vhost() -> Iterator[Broker]:
    """A virtual host of this session on the shared broker, removed afterwards.

    Where ``rabbitmqctl`` is not at hand, the virtual host of the URL, with unique names.
    """
    services.require(services.AMQP_URL, "RabbitMQ")
    name = services.session_name()
    if not _rabbitmqctl("add_vhost", name):
        broker = Broker(services.AMQP_URL)
        yield broker
        broker.disconnect()
        return
    parts = urlsplit(services.AMQP_URL)
    _rabbitmqctl("set_permissions", "-p", name, parts.username or "guest", ".*", ".*", ".*")
    broker = Broker(urlunsplit(parts._replace(path=f"/{quote(name, safe='')}")))
    try:
        yield broker
    finally:
        broker.disconnect()
        _rabbitmqctl("delete_vhost", name)


@pytest.fixture
def rabbitmq(rabbitmq_vhost: Broker) -> Iterator[Broker]:
    """The session's virtual host."""
    yield rabbitmq_vhost
    rabbitmq_vhost.disconnect()


@pytest.fixture
def rabbitmq_publisher(rabbitmq: Broker) -> Iterator[Callable[..., RabbitMQPublisher]]:
    """Makes publishers to an exchange of the session's virtual host, with more options as wanted."""
    made: list[RabbitMQPublisher] = []

    def of(exchange: str, **options: Any) -> RabbitMQPublisher:
        made.append(
            RabbitMQPublisher("test", {"URL": rabbitmq.url, "EXCHANGE": exchange, **options})
        )
        return made[-1]

    yield of
    for publisher in made:
        publisher.close()


def _rabbitmqctl(*arguments: str) -> bool:
    if shutil.which("rabbitmqctl") is None:
        return False
    done = subprocess.run(["rabbitmqctl", "-q", *arguments], capture_output=True, timeout=60)
    return done.returncode == 0


#: Bodies larger than this close the channel, and headers larger than that the connection.
NODE_MAX_MESSAGE_SIZE = 64 * 1024
NODE_FRAME_MAX = 16 * 1024


class Node:
    """A RabbitMQ node of the test session: its limits are low, and it may be stopped and starved."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.port = free_port()
        self._name = f"outbox_{os.getpid()}@localhost"
        self._process: subprocess.Popen[bytes] | None = None
        self.broker = Broker(f"amqp://guest:guest@127.0.0.1:{self.port}/%2F")
        self.tls_port = free_port()
        self.authority = Authority(base)
        certificate, key = self.authority.issue("server", "localhost")
        (base / "rabbitmq.conf").write_text(
            f"max_message_size = {NODE_MAX_MESSAGE_SIZE}\n"
            f"frame_max = {NODE_FRAME_MAX}\n"
            f"listeners.tcp.local = 127.0.0.1:{self.port}\n"
            f"listeners.ssl.local = 127.0.0.1:{self.tls_port}\n"
            f"ssl_options.cacertfile = {self.authority.path}\n"
            f"ssl_options.certfile = {certificate}\n"
            f"ssl_options.keyfile = {key}\n"
            "ssl_options.verify = verify_peer\n"
            "ssl_options.fail_if_no_peer_cert = false\n"
            "log.console = false\n"
        )
        (base / "enabled_plugins").write_text("[].\n")
        self._environment = {
            **os.environ,
            "HOME": str(base),
            "RABBITMQ_NODENAME": self._name,
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(base / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(base / "none"),
            "RABBITMQ_MNESIA_BASE": str(base / "data"),
            "RABBITMQ_LOG_BASE": str(base / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(base / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(base / "pid"),
        }

    def start(self) -> None:
        """Start the whole node."""
        self._process = subprocess.Popen(
            [_LIB / "rabbitmq-server"],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.control("wait", "--timeout", "120", str(self._base / "pid"))

    def stop(self) -> None:
        """Stop the whole node."""
        if self._process is not None:
            self.broker.disconnect()
            with suppress(subprocess.SubprocessError):
                self.control("stop", str(self._base / "pid"))
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(30)
            self._process = None

    def control(self, *arguments: str) -> None:
        """Run ``rabbitmqctl`` on this node."""
        self.output(*arguments)

    @contextmanager
    def plugin(self, name: str) -> Iterator[None]:
        """A plugin of the broker, enabled until the block ends."""
        self.output("enable", "--online", name, tool="rabbitmq-plugins")
        try:
            yield
        finally:
            self.broker.disconnect()
            self.output("disable", "--online", name, tool="rabbitmq-plugins")

    def output(self, *arguments: str, tool: str = "rabbitmqctl") -> str:
        """Run ``rabbitmqctl`` or another tool on this node; what it prints."""
        done = subprocess.run(
            [_LIB / tool, "-q", *arguments],
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=150,
        )
        return done.stdout

    @contextmanager
    def suspended(self, queue: str) -> Iterator[None]:
        """A classic queue that takes messages and confirms none, until the block ends."""
        evaluate = (
            f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)),'
            " sys:{}(amqqueue:get_pid(Q))."
        )
        self.control("eval", evaluate.replace("{}", "suspend"))
        try:
            yield
        finally:
            self.control("eval", evaluate.replace("{}", "resume"))

    @contextmanager
    def memory_alarm(self) -> Iterator[None]:
        """As if memory had run out, until the block ends."""
        self.control("set_vm_memory_high_watermark", "absolute", "1")
        try:
            yield
        finally:
            self.control("set_vm_memory_high_watermark", "0.4")


@pytest.fixture(scope="session")
def rabbitmq_node() -> Iterator[Node]:
    """A node of the session's own, started once and removed afterwards."""
    if not (_LIB / "rabbitmq-server").exists():
        pytest.skip("there is no rabbitmq-server to start a node of our own")
    base = Path(tempfile.mkdtemp(prefix="outbox_rabbitmq_"))
    node = Node(base)
    try:
        node.start()
        yield node
    finally:
        node.stop()
        shutil.rmtree(base, ignore_errors=True)
