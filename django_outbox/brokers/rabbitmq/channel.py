"""A channel in confirm mode on a connection of its own.

Any thread may send rounds; several may be under way at once. They are handed to the socket one after
the other, and their confirms are told apart by delivery tag. A channel that the broker closes is
opened again; when the connection ends, the ``ConfirmChannel`` is over and its owner makes a new one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from pika import exceptions, spec

from django_outbox.brokers.rabbitmq.confirms import ConfirmWindow
from django_outbox.brokers.rabbitmq.connection import ConnectionOptions
from django_outbox.brokers.rabbitmq.errors import reply
from django_outbox.brokers.rabbitmq.link import Link
from django_outbox.brokers.rabbitmq.questions import NO_ANSWER, Question, Questions, ending_text
from django_outbox.brokers.rabbitmq.rounds import End, Ending, Outgoing, Round
from django_outbox.brokers.rabbitmq.uninstrumented import uninstrumented

#: At most this much is handed over in one turn of the loop, so that confirms are read in between.
_SLICE_BYTES: Final = 128 * 1024
#: No more is handed over while this much waits for the socket.
_BACKLOG_BYTES: Final = 1024 * 1024
_BACKLOG_PAUSE: Final = 0.005
#: What the broker took before it blocked the connection is still confirmed: wait this long for it.
_BLOCKED_GRACE: Final = 1.0
#: Of a round's time, how much may pass before the broker is asked whether it is there.
_DOUBT: Final = 0.75
#: What a content header frame holds beside the properties (AMQP 0-9-1, 2.3.5.2).
_FRAME_OVERHEAD: Final = 8 + 12


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far things had come at some moment, so that it shows later whether they went on."""

    bytes_received: int
    waiting: int


class ConfirmChannel:
    """One connection with one channel in confirm mode. Connects as soon as it is made."""

    def __init__(
        self, options: ConnectionOptions, *, exchange: str, mandatory: bool, name: str
    ) -> None:
        """Raises ``OSError`` or ``ssl.SSLError`` where a TLS file cannot be used."""
        self._exchange = exchange
        self._mandatory = mandatory
        # All that follows belongs to the I/O thread.
        self._connection: Any = None
        self._channel: Any = None
        self._is_ready = False
        self._next_tag = 1
        self._unwritten: deque[Round] = deque()
        self._rounds: list[Round] = []  # every round that is not over
        self._blocked = ""
        self._is_writing_later = False
        self._link = Link(options, name, self)
        self._questions = Questions(self._link, exchange)
        self._link.start()

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended: a new channel is needed."""
        return self._link.is_over

    def send(self, round_: Round) -> None:
        """Send the round's messages; its end comes through the round itself."""
        if not self._link.call(partial(self._begin, round_)):
            round_.finish(self._link.ending or Ending(End.LOST, "the connection ended"))

    def ask(self, question: Question) -> None:
        """Ask the broker whether it takes messages; the answer comes through the question itself."""
        if not self._link.call(partial(self._questions.put, question)):
            question.resolve(ending_text(self._link.ending))

    def close(self, *, wait: bool = True) -> None:
        """Say goodbye to the broker and end; at most a few seconds."""
        self._link.close(wait=wait)

    # The link's listener. From here on: in the I/O thread only.

    def opened(self, connection: Any) -> None:
        """The connection is there: open the channel."""
        self._connection = connection
        self._open_channel()
        for round_ in self._rounds:
            self._watch(round_)
        self._questions.opened(connection)

    def blocked(self, reason: str) -> None:
        """Wait a moment for what the broker has taken already, then end every round."""
        self._blocked = f"the broker takes no messages: {reason}"
        self._questions.blocked(self._blocked)
        self._link.call_later(_BLOCKED_GRACE, self._end_blocked)

    def unblocked(self) -> None:
        """Go on where writing stopped."""
        self._blocked = ""
        self._questions.blocked("")
        self._write()

    def ended(self, ending: Ending) -> None:
        """Nothing more will come: end every round and answer every question."""
        for round_ in list(self._rounds):
            self._finish(round_, ending)
        self._questions.ended(ending)

    # Opening the channel.

    def _open_channel(self) -> None:
        if self._channel is not None or not self._connection.is_open:
            return
        self._channel = uninstrumented(
            self._connection.channel(on_open_callback=self._on_channel_open)
        )
        self._channel.add_on_close_callback(self._on_channel_close)

    def _on_channel_open(self, channel: Any) -> None:
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=self._on_confirming)

    def _on_confirming(self, frame: Any) -> None:
        self._next_tag = 1
        self._is_ready = True
        self._write()

    def _on_channel_close(self, channel: Any, error: BaseException) -> None:
        if channel is not self._channel:
            return
        was_ready = self._is_ready
        self._channel, self._is_ready = None, False
        if not isinstance(error, exceptions.ChannelClosedByBroker):
            return  # the connection has ended, and the link will say how
        if not was_ready:
            self._link.cut(Ending(End.LOST, f"the broker opens no channel: {reply(error)}"))
            return
        ending = Ending(End.CHANNEL_CLOSED, reply(error), error.reply_code)
        for round_ in [r for r in self._rounds if r.next]:
            self._finish(round_, ending)
        if self._rounds:
            self._link.call_later(0, self._open_channel)

    # Sending.

    def _begin(self, round_: Round) -> None:
        if self._link.ending is not None:
            round_.finish(self._link.ending)
            return
        if self._blocked:
            round_.finish(Ending(End.BLOCKED, self._blocked))
            return
        self._rounds.append(round_)
        self._unwritten.append(round_)
        if self._connection is None:
            return  # opened() will see to it
        self._watch(round_)
        self._open_channel()
        self._write()

    def _write(self) -> None:
        while self._is_ready and not self._blocked and not self._is_writing_later:
            if not self._unwritten:
                return
            if self._link.backlog > _BACKLOG_BYTES:
                self._write_later(_BACKLOG_PAUSE)
                return
            round_ = self._unwritten[0]
            if not self._write_slice(round_):
                return  # the channel is closing, its callback comes next
            if round_.is_written:
                self._unwritten.popleft()
                self._finish_if_settled(round_)
            else:
                self._write_later(0)

    def _write_later(self, seconds: float) -> None:
        self._is_writing_later = True
        self._link.call_later(seconds, self._resume_writing)

    def _resume_writing(self) -> None:
        self._is_writing_later = False
        self._write()

    def _write_slice(self, round_: Round) -> bool:
        if round_.window is None or not round_.next:
            round_.window = ConfirmWindow(self._next_tag)
        window, size = round_.window, 0
        largest = self._connection.params.frame_max - _FRAME_OVERHEAD
        while size < _SLICE_BYTES and not round_.is_written:
            outgoing = round_.outgoing[round_.next]
            try:
                self._publish(outgoing, window, largest)
            except (exceptions.AMQPConnectionError, exceptions.ChannelWrongStateError):
                return False
            round_.next += 1
            size += len(outgoing.body) + len(outgoing.properties)
        self._next_tag = window.next_tag
        return True

    def _publish(self, outgoing: Outgoing, window: ConfirmWindow, largest: int) -> None:
        if len(outgoing.properties) > largest:
            # Sent all the same, it would make the broker close the whole connection.
            reason = f"its headers take {len(outgoing.properties):,} bytes, more than frame_max"
            window.refused(outgoing.message_id, f"{reason} ({largest + _FRAME_OVERHEAD:,})")
            return
        try:
            self._channel.basic_publish(
                self._exchange,
                outgoing.routing_key,
                outgoing.body,
                outgoing.properties,
                self._mandatory,
            )
        except (exceptions.AMQPConnectionError, exceptions.ChannelWrongStateError):
            raise
        except Exception as error:  # pika encodes before it sends: not all its errors are AMQPError
            window.refused(outgoing.message_id, f"AMQP cannot encode it ({type(error).__name__})")
        else:
            window.sent(outgoing.message_id)

    # What the broker says.

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        acked = isinstance(method, spec.Basic.Ack)
        for round_ in self._rounds[:]:
            if round_.window is not None:
                round_.window.settled(method.delivery_tag, multiple=method.multiple, acked=acked)
                self._finish_if_settled(round_)

    def _on_return(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        try:
            message_id = UUID(properties.message_id)
        except (TypeError, ValueError):
            return
        reason = f"no queue is bound for its topic: {method.reply_code} {method.reply_text}"
        for round_ in self._rounds:
            if round_.window is not None:
                round_.window.returned(message_id, reason)

    # Ends.

    def _finish_if_settled(self, round_: Round) -> None:
        if round_.is_settled:
            self._finish(round_, Ending(End.SETTLED))

    def _finish(self, round_: Round, ending: Ending) -> None:
        if round_ in self._rounds:
            self._rounds.remove(round_)
        if round_ in self._unwritten:
            self._unwritten.remove(round_)
        if round_.timer is not None:
            self._link.cancel(round_.timer)
            round_.timer = None
        round_.finish(ending)

    def _end_blocked(self) -> None:
        if self._blocked:
            for round_ in list(self._rounds):
                self._finish(round_, Ending(End.BLOCKED, self._blocked))

    def _watch(self, round_: Round) -> None:
        wait = round_.confirm_timeout * _DOUBT
        round_.timer = self._link.call_later(wait, partial(self._doubt, round_))

    def _doubt(self, round_: Round) -> None:
        question = Question()
        self._questions.put(question)
        since = _Progress(self._connection.bytes_received, _waiting(round_))
        wait = round_.confirm_timeout * (1 - _DOUBT)
        check = partial(self._time_out, round_, question, since)
        round_.timer = self._link.call_later(wait, check)

    def _time_out(self, round_: Round, question: Question, since: _Progress) -> None:
        round_.timer = None
        if self._connection.bytes_received == since.bytes_received:
            self._link.cut(Ending(End.LOST, NO_ANSWER))
            return
        reason = f"no confirm within {round_.confirm_timeout:g} s"
        is_slow = question.answer is None or _waiting(round_) < since.waiting
        self._finish(round_, Ending(End.TOO_SLOW if is_slow else End.TIMED_OUT, reason))


def _waiting(round_: Round) -> int:
    unwritten = len(round_.outgoing) - round_.next
    return unwritten + (round_.window.waiting if round_.window is not None else 0)
