"""A webhook as a destination: each record is one POST, signed after Standard Webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from sinks.base import Check, Sink, SinkContext, SinkError, SinkRejected, SinkSettings
from sinks.http.check import check_address
from sinks.http.client import HttpClient, HttpLimits
from sinks.http.outcome import judge
from sinks.kinds.webhook.settings import WebhookSettings
from sinks.kinds.webhook.signature import KeyFormatError, signature_headers
from sinks.shared.errors import TryLaterError
from wire.record import CONTENT_TYPE, Record

if TYPE_CHECKING:
    from jinja2 import Template

_HINTS: Final = {
    401: "see that both sides have the same secret, and that headers hold what it asks for",
    403: "see that both sides have the same secret, and that headers hold what it asks for",
    404: "see that the address is right",
    405: "see that the address is right: it takes no POST",
    413: "it takes no body of this size; a template can send less",
    415: "it does not take CloudEvents; a template can send what it takes",
}


class WebhookSink(Sink[WebhookSettings]):
    """An HTTP endpoint: one POST per record, signed after Standard Webhooks."""

    KIND: ClassVar[str] = "webhook"
    Settings: ClassVar[type[SinkSettings]] = WebhookSettings
    LIMITS: ClassVar[HttpLimits] = HttpLimits()

    def __init__(self, name: str, settings: WebhookSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        self._template: Template | None = None
        self._client: HttpClient | None = None

    @property
    def deadline(self) -> float:
        """Seconds; the sink's own limits end a call before that."""
        return self.LIMITS.total + self.LIMITS.connect

    @property
    def wants_heartbeats(self) -> bool:
        """False for a chat or a pager, where heartbeats would only disturb."""
        return self.settings.template is None

    def open(self) -> None:
        """Read the template; the first delivery makes the connection. Raises `SinkError`."""
        self.close()
        # Not where the sink is made: the mount of the file may not answer.
        if self.settings.template is not None and self._template is None:
            self._template = _compiled(self.settings.template.get_secret_value())
        url = self.settings.url.get_secret_value()
        shown = self.settings.shown
        self._client = HttpClient(url, self.LIMITS, shown=shown, proxy=self.settings.proxy_url)

    def deliver(self, records: Sequence[Record]) -> None:
        """Post the record. Raises `SinkError`, `SinkPaused` on 410, or `SinkRejected`."""
        if self._client is None:
            self.open()
        for record in records:
            self._post(record)

    def _post(self, record: Record) -> None:
        assert self._client is not None  # noqa: S101  # deliver opened it
        body, content_type = self._render(record)
        judge(
            self._client.post(body, self._headers(record, body, content_type)),
            shown=self.settings.shown,
            now=self.context.now(),
            hints=_HINTS,
            resume=f"set another address, or resume it with: seb outbox retry {self.name}",
        )

    def _render(self, record: Record) -> tuple[bytes, str]:
        if self._template is None:
            return record.body, CONTENT_TYPE
        from sinks.kinds.webhook.template import RenderError, render  # noqa: PLC0415  # see _compiled

        try:
            return render(self._template, record)
        except RenderError as error:
            raise SinkRejected(str(error)) from None

    def _headers(self, record: Record, body: bytes, content_type: str) -> dict[str, str]:
        headers = {
            "Accept": "*/*",
            "User-Agent": f"scheduled-events-bridge/{self.context.version}",
            "Content-Type": content_type,
        }
        # Names are compared without case: what the owner sets replaces, and never doubles.
        own = {name.lower(): value for name, value in self.settings.headers.items()}
        headers = {name: value for name, value in headers.items() if name.lower() not in own}
        headers |= {name: value.get_secret_value() for name, value in own.items()}
        try:
            keys = self.settings.keys()
        except KeyFormatError as error:
            raise SinkError(f"the secret file {self.settings.secret_file}: {error}") from None
        if keys:
            now = int(self.context.now().timestamp())
            headers |= signature_headers(keys, message_id=record.id, timestamp=now, body=body)
        return headers

    def check(self) -> Sequence[Check]:
        """Check secret, name, connection and certificate; no request is sent."""
        settings = self.settings
        url = settings.url.get_secret_value()
        looked = check_address(url, self.LIMITS, proxy=settings.proxy_url)
        return (_check_secret(settings), *looked)

    def abort(self) -> None:
        """Cut the connection."""
        client = self._client
        if client is not None:
            client.abort()

    def close(self) -> None:
        """Close the kept connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _compiled(template: str) -> Template:
    # Jinja2 takes 2 MiB (measured): only a sink with a template should pay for it.
    from sinks.kinds.webhook.template import TemplateFormatError, compile_template  # noqa: PLC0415

    try:
        return compile_template(template)
    except (TemplateFormatError, TryLaterError) as error:
        raise SinkError(str(error), remedy="see TEMPLATE") from None


def _check_secret(settings: WebhookSettings) -> Check:
    try:
        keys = settings.keys()
    except (SinkError, ValueError) as error:
        text = f"the secret file {settings.secret_file}: {error}"
        return Check.fail(text, "write the key into it, readable for seb")
    if not keys:
        return Check.warn(
            "no secret: the receiver cannot tell who sent a record",
            "set secret or secret_file to a Standard Webhooks key",
        )
    if any(key.is_short for key in keys):
        return Check.warn(
            "the secret is shorter than the 24 bytes that Standard Webhooks asks for",
            "make one with: echo whsec_$(openssl rand -base64 32)",
        )
    return Check.ok(f"signed with {len(keys)} key{'s' * (len(keys) > 1)}")
