from __future__ import annotations

import os

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_forked_from_one_make_different_message_ids():
    """A server that forks its workers after the first id was made: random state must not be shared."""
    from django_outbox.drafts import uuid7

    uuid7()
    made = [_random_parts_of_a_child() for _ in range(3)]
    assert len({part for parts in made for part in parts}) == 3 * 50


def _random_parts_of_a_child():
    """What remains of 50 ids without their times, which differ anyway."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            from django_outbox.drafts import uuid7

            parts = "\n".join(uuid7().hex[12:] for _ in range(50))
            os.write(writing, parts.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        parts = stream.read().split()
    os.waitpid(child, 0)
    return parts
