"""Keys for trying the example on one machine: made once, kept in a file that git ignores.

A service gets its keyrings from the environment, where whoever steals the database does not find them
(docs/howto/rotate-keys.md).
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

RINGS = ("OUTBOX_KEYRING", "OUTBOX_INDEX_KEYRING")


def keep_development_keys(path: Path) -> None:
    """Write the file where there is none, readable by its owner only."""
    if path.exists():
        return
    keys = (base64.b64encode(os.urandom(32)).decode() for _ in RINGS)
    text = "".join(f"{ring}=dev:primary:{key}\n" for ring, key in zip(RINGS, keys, strict=True))
    path.touch(mode=0o600)
    path.write_text(text)
