"""What a long-running command writes to the terminal, where the project has configured no logging."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_LEVELS: Final = {0: logging.ERROR, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}


@contextmanager
def console_log(stream: Any, verbosity: int) -> Iterator[None]:
    """The package's records on the stream; where the project logs them itself, nothing is added."""
    logger = logging.getLogger("django_outbox")
    if logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(_LEVELS[verbosity])
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def quiet_pika() -> Iterator[None]:
    """Without the client library's own lines, unless the project has configured its logger.

    It reports every failed attempt to connect in several lines of ``ERROR``, with a traceback; all that
    they say is in the relay's own line about the breaker.
    """
    logger = logging.getLogger("pika")
    # One that does nothing is pika's own.
    handlers = [each for each in logger.handlers if not isinstance(each, logging.NullHandler)]
    if logger.level != logging.NOTSET or handlers:
        yield
        return
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)
