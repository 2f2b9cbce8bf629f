"""A webhook as a destination: each record is one POST, signed after Standard Webhooks.

It never shows more of its address than scheme, host and port, and never takes a redirect for a
delivery.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import ClassVar, Final
from urllib.parse import urlsplit

from sinks.base import Check, Sink, SinkContext, SinkError, SinkPaused, SinkRejected, SinkSettings
from sinks.record import CONTENT_TYPE, EventRecord
from sinks.webhook.check import look_at
from sinks.webhook.http import Answer, Limits, Poster
from sinks.webhook.settings import WebhookSettings, origin
from sinks.webhook.signature import KeyFormatError, signature_headers
from sinks.webhook.template import Rendered, RenderError, compile_template, render

# Told to come back later; and 407, which a proxy says and not the receiver.
_LATER: Final = (407, 408, 425, 429)
_PATIENCE: Final = 5
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
    LIMITS: ClassVar[Limits] = Limits()

    def __init__(self, name: str, settings: WebhookSettings, context: SinkContext) -> None:
        super().__init__(name, settings, context)
        template = settings.template
        self._template = compile_template(template.get_secret_value()) if template else None
        self._poster: Poster | None = None

    @property
    def deadline(self) -> float:
        """Seconds; the sink's own limits end a call before that."""
        return self.LIMITS.total + self.LIMITS.connect

    @property
    def wants_heartbeats(self) -> bool:
        """A chat or a pager is not told each minute that nothing happened."""
        return self._template is None

    def open(self) -> None:
        """Get ready; the connection is made by the first delivery."""
        self.close()
        self._poster = Poster(self.settings.url.get_secret_value(), self.LIMITS)

    def deliver(self, records: Sequence[EventRecord]) -> None:
        """Post the record.

        Raises `SinkError` where it was not taken, `SinkPaused` on 410, `SinkRejected` where the
        answer or the template says that trying again is no use.
        """
        if self._poster is None:
            self.open()
        for record in records:
            self._post(record)

    def _post(self, record: EventRecord) -> None:
        assert self._poster is not None  # noqa: S101 - deliver opened it
        rendered = self._render(record)
        headers = self._headers(record, rendered)
        try:
            answer = self._poster.post(rendered.body, headers)
        except SinkError as error:
            raise SinkError(f"{self.settings.shown}: {error}") from None
        self._judge(answer)

    def _render(self, record: EventRecord) -> Rendered:
        if self._template is None:
            return Rendered(body=record.body, content_type=CONTENT_TYPE)
        try:
            return render(self._template, record)
        except RenderError as error:
            raise SinkRejected(str(error)) from None

    def _headers(self, record: EventRecord, rendered: Rendered) -> dict[str, str]:
        headers = {
            "Accept": "*/*",
            "User-Agent": f"scheduled-events-bridge/{self.context.version}",
            "Content-Type": rendered.content_type,
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
            headers |= signature_headers(
                keys,
                message_id=record.id,
                timestamp=int(self.context.now().timestamp()),
                body=rendered.body,
            )
        return headers

    def _judge(self, answer: Answer) -> None:
        """Return for 2xx; raise what the status means for anything else."""
        status = answer.status
        said = f"{self.settings.shown} answered {_status_words(status)}"
        if 200 <= status < 300:  # noqa: PLR2004 - HTTP's classes are read as numbers
            return
        if 300 <= status < 400:  # noqa: PLR2004
            raise SinkError(f"{said}, which is not followed{_pointing_to(answer.location)}")
        if status == HTTPStatus.GONE:
            raise SinkPaused(
                f"{said}: it wants no more records; set another address,"
                " or let it go on with: seb outbox retry"
            )
        if status in _LATER or not 400 <= status < 500:  # noqa: PLR2004
            after = seconds_to_wait(answer.retry_after, now=self.context.now())
            raise SinkError(said, retry_after=after)
        hint = _HINTS.get(status)
        raise SinkRejected(f"{said}; {hint}" if hint else said, tries=_PATIENCE)

    def check(self) -> Sequence[Check]:
        """Secret, name, connection and certificate; no request is sent."""
        return tuple(look_at(self.settings, self.LIMITS))

    def abort(self) -> None:
        """Cut the connection."""
        poster = self._poster
        if poster is not None:
            poster.abort()

    def close(self) -> None:
        """Close the kept connection."""
        if self._poster is not None:
            self._poster.close()
            self._poster = None


def seconds_to_wait(retry_after: str | None, *, now: datetime) -> float | None:
    """What a Retry-After header asks for, in seconds; None for none, nonsense, or the past.

    RFC 9110, 10.2.3: a number of seconds, or a date.
    """
    if not retry_after:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            date = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError, IndexError, TypeError):
            return None
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (date - now).total_seconds()
    return seconds if seconds > 0 and math.isfinite(seconds) else None


def _status_words(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _pointing_to(location: str | None) -> str:
    """Where a redirect points, as far as it may be shown."""
    try:
        target = origin(urlsplit(location or ""))
    except ValueError:
        target = ""
    if not target.startswith("http") or not target.isprintable():
        return "; set the address to where the receiver really is"
    return f"; it points to {target}: set the address to where the receiver really is"
