"""Webhook sinks whose every secret is known, so that a test can look for it in every message."""

import base64
from datetime import UTC, datetime
from typing import Any

from support.sinks.http_server import HttpServer

from sinks.base import SinkContext
from sinks.http.client import HttpLimits
from sinks.kinds.webhook import WebhookSink
from sinks.kinds.webhook.settings import WebhookSettings
from sinks.testing import SAMPLE_VM

KEY = "whsec_" + base64.b64encode(b"a key of thirty-two bytes, or so").decode()
OTHER_KEY = "whsec_" + base64.b64encode(b"another key of thirty-two bytes.").decode()
PATH = "/services/T000/B000/path-that-is-secret"
QUERY = "code=query-that-is-secret"
TOKEN = "Bearer token-that-is-secret"
SECRETS = (KEY, KEY.removeprefix("whsec_"), PATH, QUERY, TOKEN)


class HastyWebhookSink(WebhookSink):
    """A webhook with limits that a test can wait for."""

    LIMITS = HttpLimits(connect=2.0, read=1.0, total=2.5, body=0.5)


def settings(url: str, **others: Any) -> WebhookSettings:
    """Settings of a webhook."""
    return WebhookSettings.model_validate({"kind": "webhook", "url": url, **others})


def hasty(server: HttpServer, *, url: str | None = None, **others: Any) -> HastyWebhookSink:
    """A webhook at this server, with the real clock and every secret set."""
    others.setdefault("secret", KEY)
    others.setdefault("headers", {"Authorization": TOKEN})
    context = SinkContext(
        identity=lambda: SAMPLE_VM, now=lambda: datetime.now(UTC), version="1.2.3"
    )
    made = settings(url or f"{server.origin}{PATH}?{QUERY}", **others)
    return HastyWebhookSink("ops", made, context)


def shows_no_secret(text: str) -> bool:
    """Whether none of the secrets above, nor a part of the address, stands in the text."""
    parts = (*SECRETS, "path-that-is", "query-that-is", "token-that-is", "/services")
    return not [part for part in parts if part in text]
