"""``manage.py outbox_asyncapi``: the AsyncAPI 3.0 document of all event types."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_outbox.conf import outbox_settings
from django_outbox.event_types.asyncapi import asyncapi_document
from django_outbox.event_types.registry import all_event_types


class Command(BaseCommand):
    help = "Print the AsyncAPI 3.0 document of all registered event types, as JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--title", default="", help="the document's title (default: the source)"
        )
        parser.add_argument(
            "--document-version", default="1.0.0", help="the document's own version"
        )
        parser.add_argument("--output", type=Path, help="write to this file instead of printing")

    def handle(self, *args: Any, **options: Any) -> None:
        settings = outbox_settings()
        exchanges = {str(p.options.get("EXCHANGE", "")) for p in settings.publishers.values()} - {
            ""
        }
        document = asyncapi_document(
            all_event_types(),
            title=options["title"] or settings.source.strip("/"),
            version=options["document_version"],
            exchange=exchanges.pop() if len(exchanges) == 1 else "",
        )
        text = json.dumps(document, indent=2, ensure_ascii=False, sort_keys=False)
        path: Path | None = options["output"]
        if path is None:
            self.stdout.write(text)
            return
        try:
            path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror}") from error
