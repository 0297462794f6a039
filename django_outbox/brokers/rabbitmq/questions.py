"""Ask the broker whether it would take messages: a publish that goes nowhere, then a declare.

The publish is needed because only a connection that publishes is told that the broker is short of
memory or disk. Where it is, the declare is not answered, and ``connection.blocked`` comes instead.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Final
from uuid import uuid4

import pika
from pika import exceptions

from django_outbox.brokers.rabbitmq.errors import reply
from django_outbox.brokers.rabbitmq.link import Link
from django_outbox.brokers.rabbitmq.rounds import Ending
from django_outbox.brokers.rabbitmq.uninstrumented import uninstrumented

NO_ANSWER: Final = "the broker does not answer"
#: An exchange that is missing or forbidden says nothing against the broker.
_ANSWERED: Final = frozenset({403, 404})


class Question:
    """Whether the broker would take messages: asked by any thread, answered by the I/O thread."""

    def __init__(self) -> None:
        self.answer: str | None = None
        """Empty: yes; else why not. None: no answer yet."""
        self._answered = threading.Event()

    def resolve(self, answer: str) -> None:
        """Give the answer; the first one counts."""
        if self.answer is None:
            self.answer = answer
            self._answered.set()

    def wait(self, seconds: float) -> str:
        """The answer, or that none came in time."""
        self._answered.wait(seconds)
        return NO_ANSWER if self.answer is None else self.answer


class Questions:
    """The open questions of one link. Everything here runs in its I/O thread."""

    def __init__(self, link: Link, exchange: str) -> None:
        self._link = link
        self._exchange = exchange
        self._connection: Any = None
        self._open: list[Question] = []
        self._blocked = ""

    def opened(self, connection: Any) -> None:
        """The connection is there: put what was asked before."""
        self._connection = connection
        for question in self._open:
            self._pose_on_a_channel_of_its_own(question)

    def put(self, question: Question) -> None:
        """Ask, at once or as soon as there is a connection."""
        if self._link.is_over:
            question.resolve(ending_text(self._link.ending))
        elif self._blocked:
            question.resolve(self._blocked)
        else:
            self._open.append(question)
            if self._connection is not None:
                self._pose_on_a_channel_of_its_own(question)

    def blocked(self, reason: str) -> None:
        """The broker has said that it takes no messages, or (an empty reason) that it does again."""
        self._blocked = reason
        if reason:
            self._resolve_all(reason)

    def ended(self, ending: Ending) -> None:
        """The link is over."""
        self._resolve_all(ending_text(ending))

    def _pose_on_a_channel_of_its_own(self, question: Question) -> None:
        if self._connection.is_open:
            pose = partial(self._pose, question)
            channel = uninstrumented(self._connection.channel(on_open_callback=pose))
            channel.add_on_close_callback(partial(self._on_close, question))

    def _pose(self, question: Question, channel: Any) -> None:
        channel.basic_publish("", f"django_outbox.probe.{uuid4()}", b"", pika.BasicProperties())
        channel.exchange_declare(
            self._exchange, passive=True, callback=partial(self._on_answer, question, channel)
        )

    def _on_answer(self, question: Question, channel: Any, frame: Any) -> None:
        self._resolve(question, "")
        channel.close()

    def _on_close(self, question: Question, channel: Any, error: BaseException) -> None:
        if isinstance(error, exceptions.ChannelClosedByBroker):
            self._resolve(question, "" if error.reply_code in _ANSWERED else reply(error))

    def _resolve(self, question: Question, answer: str) -> None:
        if question in self._open:
            self._open.remove(question)
        question.resolve(answer)

    def _resolve_all(self, answer: str) -> None:
        for question in self._open:
            question.resolve(answer)
        self._open.clear()


def ending_text(ending: Ending | None) -> str:
    """Why a link that is over gives no answer."""
    return (ending.reason if ending else "") or NO_ANSWER
