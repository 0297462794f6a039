"""``outbox_keys``: make, look at, export and give up keys."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_outbox.encryption import conf, jwe, key_report, rotation
from django_outbox.encryption.derivation import KEY_BYTES
from django_outbox.encryption.exceptions import EncryptionError
from django_outbox.encryption.keyrings import Key, KeyState, entry_of


class Command(BaseCommand):
    """Parses, calls and prints. Works without keys, tables or valid settings where it can."""

    help = "Make a key, see which keys are in use, export a topic's key, give a key up."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """One sub-command each."""
        actions = parser.add_subparsers(dest="action", required=True)
        generate = actions.add_parser("generate", help="print a new random key as a keyring entry")
        generate.add_argument("--kid", help="the key's id; today's date unless given")
        generate.add_argument(
            "--state",
            choices=[KeyState.PRIMARY.value, KeyState.RETIRED.value],
            default=KeyState.PRIMARY.value,
            help="primary seals (the default); retired opens and searches",
        )
        status = actions.add_parser("status", help="the keys, and how many values name each")
        status.add_argument("--json", action="store_true", help="for programs")
        export = actions.add_parser(
            "export", help="print a topic's key as a JWK; whoever has it opens the topic's members"
        )
        export.add_argument("--topic", required=True)
        export.add_argument("--kid", help="the root key's id; the primary one's unless given")
        destroy = actions.add_parser(
            "destroy", help="give a key up for ever; refused while a value names it"
        )
        # Another name than --kid of the others: call_command() would mix them up.
        destroy.add_argument("given_up", metavar="KID")
        destroy.add_argument("--ring", choices=conf.RINGS, default=conf.DEFAULT)

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        """Call what the sub-command names."""
        try:
            match action:
                case "generate":
                    self.generate(options["kid"], KeyState(options["state"]))
                case "status":
                    self.status(as_json=options["json"])
                case "export":
                    jwk = jwe.exported_jwk(conf.keyring(), options["topic"], options["kid"])
                    self.stdout.write(json.dumps(jwk))
                case "destroy":
                    self.destroy(options["ring"], options["given_up"])
        except EncryptionError as error:
            raise CommandError(str(error)) from None

    def generate(self, kid: str | None, state: KeyState) -> None:
        """A key from the operating system's random source."""
        kid = kid or f"{datetime.now(UTC):%Y%m%d}"
        key = Key.of(kid, os.urandom(KEY_BYTES), state)
        self.stdout.write(entry_of(key))
        self.stderr.write(
            "Keep it where backups of the database are not, and add it to the keyring."
        )

    def status(self, *, as_json: bool) -> None:
        """What ``key_report`` finds."""
        report = key_report.collect()
        if as_json:
            self.stdout.write(json.dumps(report.as_dict(), default=str, indent=2))
        else:
            self.stdout.write("\n".join(report.lines()))
        if report.problems:
            raise CommandError("; ".join(report.problems))

    def destroy(self, ring: str, kid: str) -> None:
        """Mark it destroyed, and say what has to be done by hand."""
        tombstone = rotation.destroy(ring, kid)
        self.stdout.write(
            f"No value names {kid!r}. Put this in its place in the keyring {ring!r}, and destroy"
            f" every copy of the key:\n{entry_of(tombstone)}"
        )
