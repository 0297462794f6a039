"""Task messages to RabbitMQ: the pipelined confirms of the RabbitMQ publisher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from django_outbox.brokers.rabbitmq.encoding import encoded
from django_outbox.brokers.rabbitmq.rounds import Outgoing
from django_outbox.exceptions import UnsendableMessage
from django_outbox.messages import Message
from django_outbox.publishers.base import Outcome, Receipt
from django_outbox.publishers.celery.routing import Address
from django_outbox.publishers.rabbitmq import RabbitMQOptions, RabbitMQPublisher
from django_outbox.wire.amqp import PERSISTENT
from django_outbox.wire.celery import to_celery

Addresses: TypeAlias = Callable[[Message], Address]


class AmqpTaskSender(RabbitMQPublisher):
    """Sends task messages to one exchange."""

    def __init__(self, alias: str, options: RabbitMQOptions, address_of: Addresses) -> None:
        self._address_of = address_of
        self._begin(alias, options)

    def _encode(self, messages: Sequence[Message]) -> tuple[list[Outgoing], list[Receipt]]:
        outgoing: list[Outgoing] = []
        refused: list[Receipt] = []
        for message in messages:
            try:
                outgoing.append(_outgoing(message, self._address_of(message)))
            except UnsendableMessage as error:
                refused.append(Receipt(message.id, Outcome.REJECTED, str(error)))
        return outgoing, refused


def _outgoing(message: Message, address: Address) -> Outgoing:
    call = to_celery(message, address.task)
    properties = encoded(
        call.headers,
        content_type=call.content_type,
        content_encoding=call.content_encoding,
        correlation_id=call.correlation_id,
        delivery_mode=PERSISTENT,
        message_id=call.correlation_id,
    )
    try:
        body = call.body.encode()
    except UnicodeEncodeError:
        raise UnsendableMessage("its body", "holds a lone surrogate, which is no Unicode") from None
    return Outgoing(message.id, address.routing_key, properties, body)
