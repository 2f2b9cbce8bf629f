import email
import email.policy
import socketserver
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from sinks.base import SinkError, SinkRejected
from sinks.testing import SinkContract, sample_context, sample_heartbeat, sample_record

from seb_sink_email import EmailSettings, EmailSink


class Conversation(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs that has one message to send."""

    server: "Server"

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            word = line[:4].upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                self.server.got.append(b"".join(iter(self.rfile.readline, b".\r\n")))
            codes = {b"QUIT": 221, b"RCPT": self.server.recipient_code}
            self.wfile.write(b"%d so be it\r\n" % codes.get(word, 250))


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, got: list[bytes], recipient_code: int) -> None:
        self.got = got
        self.recipient_code = recipient_code
        super().__init__(("127.0.0.1", port), Conversation)


class MailServer:
    """A mail server on loopback, which can go away and come back."""

    secrets: Sequence[str] = ()

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.recipient_code = 250
        self.port = 0
        self.start()

    @property
    def settings(self) -> Mapping[str, Any]:
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "sender": "seb@example.com",
            "recipient": "ops@example.com",
        }

    def messages(self) -> list[Any]:
        return [email.message_from_bytes(text, policy=email.policy.default) for text in self.got]

    def received(self) -> Sequence[bytes]:
        return [next(m.iter_attachments()).get_payload(decode=True) for m in self.messages()]

    def start(self) -> None:
        self._server = Server(self.port, self.got, self.recipient_code)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,)).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def mail() -> Iterator[MailServer]:
    running = MailServer()
    yield running
    running.stop()


class TestEmailContract(SinkContract):
    """Every promise of the contract, against a mail server on loopback."""

    sink_class = EmailSink

    @pytest.fixture
    def destination(self, mail: MailServer) -> MailServer:
        return mail


def a_sink(mail: MailServer, **others: Any) -> EmailSink:
    settings = EmailSettings.model_validate({"kind": "email", **mail.settings, **others})
    return EmailSink("email", settings, sample_context())


def test_a_repeated_delivery_has_the_same_message_id(mail: MailServer) -> None:
    """The reader of a record that comes twice can see that it is the same."""
    sink = a_sink(mail)
    sink.deliver([sample_record()])
    sink.deliver([sample_record()])
    expected = f"<{sample_record().id}@scheduled-events-bridge>"
    assert [expected, expected] == [message["Message-ID"] for message in mail.messages()]


@pytest.mark.parametrize(("code", "raised"), [(450, SinkError), (550, SinkRejected)])
def test_the_servers_no_is_understood(mail: MailServer, code: int, raised: type[Exception]) -> None:
    """4yz means later, 5yz means never."""
    mail._server.recipient_code = code
    with pytest.raises(raised, match=f"127.0.0.1 answered {code}"):
        a_sink(mail).deliver([sample_record()])


def test_a_password_is_never_sent_unencrypted(mail: MailServer) -> None:
    """A server without TLS gets no password, and the record waits."""
    sink = a_sink(mail, username="me", password="hunter2")
    with pytest.raises(SinkError) as caught:
        sink.deliver([sample_record()])
    assert "hunter2" not in str(caught.value)
    assert mail.got == []


def test_nobody_gets_a_mail_a_minute(mail: MailServer) -> None:
    """Heartbeats are not mailed unless `types` asks."""
    beat = sample_heartbeat()
    assert not a_sink(mail).accepts(beat.type, beat.concerns_this_vm)
    assert a_sink(mail, types=["seb.*"]).accepts(beat.type, beat.concerns_this_vm)
