"""Find the message that makes the broker close the channel. No socket: the sending is an argument.

The broker does not say which message it was, and it throws away what was sent after it. So the
messages without a confirm are sent again by halves, on a channel that nobody else uses, until one is
alone when the channel closes. Only that one is charged.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from django_outbox.brokers.rabbitmq.rounds import End, Ending, Outgoing, Round
from django_outbox.receipts import Outcome, Receipt

NEIGHBOUR: Final = "a neighbour made the broker close the channel"
#: What the broker says of the exchange concerns every message: a round goes to one exchange.
#: Anything else it says may concern one message, and is looked into.
_OF_THE_EXCHANGE: Final = re.compile(r"no exchange|access to exchange|to internal exchange")
#: The broker blames itself: another attempt may succeed.
_BROKERS_FAULT: Final = frozenset({506, 541})


def judge(round_: Round, ending: Ending) -> tuple[list[Receipt], list[Outgoing]]:
    """The receipts of a round that is over, and its suspects: one of them closed the channel."""
    receipts = round_.receipts
    sent, unsent = round_.without_receipt()
    match ending.end:
        case End.SETTLED:
            pass
        case End.CHANNEL_CLOSED if _OF_THE_EXCHANGE.search(ending.reason):
            receipts += _receipts([*sent, *unsent], Outcome.REJECTED, ending.reason)
        case End.CHANNEL_CLOSED | End.CONNECTION_REFUSED:
            return receipts, [*sent, *unsent]
        case End.TIMED_OUT:
            receipts += _receipts(sent, Outcome.FAILED, ending.reason)
            receipts += _receipts(unsent, Outcome.NOT_SENT, ending.reason)
        case End.TOO_SLOW | End.CLOSED:
            receipts += _receipts([*sent, *unsent], Outcome.NOT_SENT, ending.reason)
        case End.LOST | End.BLOCKED:
            receipts += _receipts([*sent, *unsent], Outcome.BROKER_DOWN, ending.reason)
    return receipts, []


def find_culprits(
    suspects: Sequence[Outgoing],
    attempt: Callable[[Sequence[Outgoing]], tuple[Round, Ending]],
    has_time: Callable[[], bool],
) -> list[Receipt]:
    """Send the suspects again until each has a receipt, or time is up; the rest counts as not sent.

    ``attempt`` sends messages on a channel of its own and returns when that is over.
    """
    receipts: list[Receipt] = []
    chunks = deque([suspects])
    while chunks:
        if not has_time():
            break
        chunk = chunks.popleft()
        round_, ending = attempt(chunk)
        found, left = judge(round_, ending)
        receipts += found
        if len(left) == 1:
            receipts.append(_culprit(left[0], ending))
        elif left:
            middle = len(left) // 2
            chunks.extendleft([left[middle:], left[:middle]])
        elif ending.end in {End.LOST, End.BLOCKED}:
            rest = [outgoing for waiting in chunks for outgoing in waiting]
            return receipts + _receipts(rest, Outcome.BROKER_DOWN, ending.reason)
    rest = [outgoing for waiting in chunks for outgoing in waiting]
    return receipts + _receipts(rest, Outcome.NOT_SENT, NEIGHBOUR)


def _culprit(outgoing: Outgoing, ending: Ending) -> Receipt:
    outcome = Outcome.FAILED if ending.code in _BROKERS_FAULT else Outcome.REJECTED
    return Receipt(outgoing.message_id, outcome, ending.reason)


def _receipts(outgoing: Sequence[Outgoing], outcome: Outcome, reason: str) -> list[Receipt]:
    return [Receipt(o.message_id, outcome, reason) for o in outgoing]
