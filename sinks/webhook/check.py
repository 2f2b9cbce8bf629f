"""The lines of `seb check` about a webhook, one per step. It never sends a request."""

from __future__ import annotations

from collections.abc import Iterator

from sinks.base import Check, SinkError
from sinks.http.check import look_at_address
from sinks.http.client import Limits
from sinks.webhook.settings import WebhookSettings


def look_at(settings: WebhookSettings, limits: Limits) -> Iterator[Check]:
    """Secret, transport, name, connection, certificate; ends at the first step that fails."""
    yield from _secret(settings)
    url = settings.url.get_secret_value()
    yield from look_at_address(url, limits, proxy=settings.proxy_url)


def _secret(settings: WebhookSettings) -> Iterator[Check]:
    try:
        keys = settings.keys()
    except (SinkError, ValueError) as error:
        text = f"the secret file {settings.secret_file}: {error}"
        yield Check(level="fail", text=text, remedy="write the key into it, readable for seb")
        return
    if not keys:
        yield Check(
            level="warn",
            text="no secret: the receiver cannot tell who sent a record",
            remedy="set secret or secret_file to a Standard Webhooks key",
        )
    elif any(key.is_short for key in keys):
        yield Check(
            level="warn",
            text="the secret is shorter than the 24 bytes that Standard Webhooks asks for",
            remedy="make one with: echo whsec_$(openssl rand -base64 32)",
        )
    else:
        yield Check(level="ok", text=f"signed with {len(keys)} key{'s' * (len(keys) > 1)}")
