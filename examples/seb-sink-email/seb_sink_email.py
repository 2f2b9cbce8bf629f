"""E-mail as a destination: one message per record. It never sends a password unencrypted."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr
from sinks.base import Check, Sink, SinkError, SinkRejected, SinkSettings, read_secret
from wire.record import Record


class EmailSettings(SinkSettings):
    """The mail server, and from whom to whom."""

    host: str = Field(description="Mail server")
    port: int = Field(default=25, description="Its port; 587 where a user name is needed")
    sender: str = Field(description="From")
    recipient: str = Field(description="To")
    username: str | None = Field(default=None, description="User name, where the server wants one")
    password: SecretStr | None = Field(default=None, description="Its password")
    password_file: Path | None = Field(default=None, description="File with the password")


class EmailSink(Sink[EmailSettings]):
    """Hands each record to a mail server; 250 after the message is its acknowledgement."""

    KIND: ClassVar[str] = "email"
    Settings: ClassVar[type[SinkSettings]] = EmailSettings

    @property
    def wants_heartbeats(self) -> bool:
        """No: that would be a mail a minute."""
        return False

    def deliver(self, records: Sequence[Record]) -> None:
        """Send a message. Raises `SinkError` (try later) or `SinkRejected` (never)."""
        for record in records:
            try:
                with self._server() as server:
                    server.send_message(self._message(record))
            except smtplib.SMTPRecipientsRefused as error:
                code = next(iter(error.recipients.values()))[0]
                raise self._answered(code) from None
            except smtplib.SMTPResponseException as error:
                raise self._answered(error.smtp_code) from None
            except (OSError, smtplib.SMTPException) as error:
                raise SinkError(f"{self.settings.host}: {_words(error)}") from None

    def check(self) -> Sequence[Check]:
        """Connect, encrypt and log in as a delivery would; send nothing."""
        try:
            with self._server():
                return (Check.ok(f"{self.settings.host} takes mail"),)
        except (OSError, smtplib.SMTPException, SinkError) as error:
            text = f"{self.settings.host}: {_words(error)}"
            remedy = "see that host, port, username and password are right"
            return (Check.fail(text, remedy),)

    @contextmanager
    def _server(self) -> Iterator[smtplib.SMTP]:
        """A connection per message: events are rare, and a server drops those who wait."""
        settings = self.settings
        with smtplib.SMTP(settings.host, settings.port, timeout=self.deadline / 3) as server:
            if settings.username is not None:
                server.starttls(context=ssl.create_default_context())
                password = read_secret(settings.password, settings.password_file) or ""
                server.login(settings.username, password)
            yield server

    def _message(self, record: Record) -> EmailMessage:
        message = EmailMessage()
        message["From"] = self.settings.sender
        message["To"] = self.settings.recipient
        message["Subject"] = f"{self.context.vm.name}: {record.type}"
        # The record's id: a repeated delivery has the same one, and mail systems drop the double.
        message["Message-ID"] = f"<{record.id}@scheduled-events-bridge>"
        message.set_content(f"{record.subject}\n\nThe record is attached.\n")
        message.add_attachment(
            record.body, maintype="application", subtype="cloudevents+json", filename="record.json"
        )
        return message

    def _answered(self, code: int) -> SinkError | SinkRejected:
        """RFC 5321, 4.2.1: 4yz means later, 5yz means never."""
        text = f"{self.settings.host} answered {code}"
        return SinkRejected(text, tries=3) if code >= 500 else SinkError(text)  # noqa: PLR2004


def _words(error: Exception) -> str:
    """Why, without what a server may have quoted: a message must never hold a secret."""
    if isinstance(error, SinkError):
        return str(error)
    return getattr(error, "strerror", None) or type(error).__name__
