"""The webhook sink: a delivery is one signed POST."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks import Webhook
from support.faults.held_file import held
from support.sinks.destination import FarEnd
from support.sinks.http_server import HttpServer
from support.sinks.webhook import (
    KEY,
    OTHER_KEY,
    PATH,
    QUERY,
    SECRETS,
    TOKEN,
    hasty,
    shows_no_secret,
)

from sinks.base import SinkError, SinkPaused, SinkRejected
from sinks.http.outcome import seconds_to_wait
from sinks.kinds.webhook import WebhookSink
from sinks.shared.call_with_timeout import StuckError, call_with_timeout
from sinks.testing import (
    SAMPLE_TIME,
    SinkContract,
    sample_heartbeat,
    sample_record,
    sample_records,
)
from wire.record import Record


class TestWebhookContract(SinkContract):
    sink_class = WebhookSink

    @pytest.fixture
    def destination(self, server: HttpServer) -> FarEnd:
        return FarEnd(
            settings={
                "url": f"{server.origin}{PATH}?{QUERY}",
                "secret": KEY,
                "headers": '{"Authorization": "' + TOKEN + '"}',
            },
            secrets=SECRETS,
            received=lambda: [request.body for request in server.requests()],
            stop=server.stop,
            start=server.start,
        )


def test_a_delivery_is_one_signed_post(server: HttpServer) -> None:
    """Method, path, query and headers are those of Standard Webhooks and CloudEvents; without a
    secret there is no header for a signature.
    """
    before = int(datetime.now(UTC).timestamp())
    hasty(server).deliver([sample_record()])
    hasty(server, secret=None).deliver([sample_record()])
    request, unsigned = server.requests()
    headers = request.headers
    assert (request.method, request.target) == ("POST", f"{PATH}?{QUERY}")
    assert headers["webhook-id"] == sample_record().id
    assert headers["content-type"] == "application/cloudevents+json"
    assert headers["user-agent"] == "scheduled-events-bridge/1.2.3"
    assert headers["authorization"] == TOKEN
    assert before <= int(headers["webhook-timestamp"]) <= int(datetime.now(UTC).timestamp())
    assert [name for name in unsigned.headers if name.startswith("webhook-")] == []


def test_an_independent_verifier_agrees(server: HttpServer) -> None:
    """The standardwebhooks package verifies each kind of record."""
    sink = hasty(server)
    for record in sample_records():
        sink.deliver([record])
    for request in server.requests():
        Webhook(KEY).verify(request.body, request.headers)


def test_both_keys_sign_while_they_are_rotated(server: HttpServer) -> None:
    """A delivery with two keys has two signatures, so that a receiver with either key can verify
    it.
    """
    hasty(server, secret=f"{OTHER_KEY} {KEY}").deliver([sample_record()])
    (request,) = server.requests()
    for key in (KEY, OTHER_KEY):
        Webhook(key).verify(request.body, request.headers)
    assert len(request.headers["webhook-signature"].split(" ")) == 2


def test_a_rotated_file_is_used_at_once(server: HttpServer, tmp_path: Path) -> None:
    """A new key in the file signs the next delivery of the same sink; the error about a file
    without a key, or a missing file, names it.
    """
    file = tmp_path / "secret"
    file.write_text(f"{KEY}\n")
    sink = hasty(server, secret=None, secret_file=str(file))
    sink.deliver([sample_record(1)])
    file.write_text(OTHER_KEY)
    sink.deliver([sample_record(2)])
    for request, key in zip(server.requests(), (KEY, OTHER_KEY), strict=True):
        Webhook(key).verify(request.body, request.headers)
    for spoil in (lambda: file.write_text("hunter2"), file.unlink):
        spoil()
        with pytest.raises(SinkError, match=re.escape(str(file))) as caught:
            sink.deliver([sample_record()])
        assert "hunter2" not in str(caught.value)
    assert len(server.requests()) == 2


def test_an_independent_parser_reads_it(server: HttpServer) -> None:
    """The cloudevents package reads the request as the event that was committed."""
    hasty(server).deliver([sample_record()])
    (request,) = server.requests()
    event = from_http_event(HTTPMessage(headers=request.headers, body=request.body))
    assert (event.get_id(), event.get_type()) == (sample_record().id, sample_record().type)
    assert event.get_data() == sample_record().data


def test_own_headers_replace_and_never_double(server: HttpServer) -> None:
    """A header that the owner sets, in any case, replaces the sink's own."""
    hasty(server, headers={"user-AGENT": "mine", "X-Ops": "1"}).deliver([sample_record()])
    (request,) = server.requests()
    assert request.head.lower().count(b"user-agent:") == 1
    assert (request.headers["user-agent"], request.headers["x-ops"]) == ("mine", "1")


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 299])
def test_any_2xx_is_a_delivery(server: HttpServer, status: int) -> None:
    """Any status of 2xx acknowledges the record, whatever the body is."""
    server.answer(status=status, body=b"" if status == 204 else b"no")
    hasty(server).deliver([sample_record()])


def raised(server: HttpServer, **answer: Any) -> Exception:
    """Return what a delivery raises on this answer; no secret is in it."""
    server.answer(**answer)
    with pytest.raises((SinkError, SinkRejected)) as caught:
        hasty(server).deliver([sample_record()])
    assert shows_no_secret(f"{caught.value!r} {caught.value}")
    return caught.value


@pytest.mark.parametrize(
    ("statuses", "error", "remedy"),
    [
        ((401, 403, 404, 405, 407), SinkError, "see "),
        ((408, 425, 429, 500, 501, 502, 503, 504, 507, 599, 600), SinkError, ""),
        ((400, 402, 406, 409, 413, 415, 418, 422, 431, 451, 499), SinkRejected, ""),
    ],
)
def test_what_a_status_means(
    server: HttpServer, statuses: Sequence[int], error: type[Exception], remedy: str
) -> None:
    """A status about key, path or proxy holds the record, with a remedy; overload and server errors
    are tried again; other 4xx reject the record at the fifth try.
    """
    for status in statuses:
        told = raised(server, status=status, headers={"Retry-After": "7"})
        assert type(told) is error
        assert str(told).startswith(f"{server.origin} answered {status}")
        if isinstance(told, SinkRejected):
            assert (told.tries, told.delivered) == (5, 0)
        else:
            assert isinstance(told, SinkError)
            assert told.retry_after == 7.0
            assert (told.problem.remedy or "").startswith(remedy)


def test_gone_pauses_the_sink(server: HttpServer) -> None:
    """A 410 pauses the sink, and the error says how to resume it."""
    error = raised(server, status=410)
    assert isinstance(error, SinkPaused)
    assert "resume it with: seb outbox retry " in str(error)


@pytest.mark.parametrize("location", ["", "/elsewhere", "http://[", "ftp://x/", "http://\x9b31m/"])
def test_a_redirect_without_a_usable_location(server: HttpServer, location: str) -> None:
    """A Location that is missing, relative or hostile is left out of the message."""
    error = raised(server, status=302, headers={"Location": location})
    assert str(error).endswith("is not followed; set the receiver's own address")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(server: HttpServer, status: int) -> None:
    """A redirect is an error that shows only the target's origin."""
    with HttpServer() as elsewhere:
        location = f"{elsewhere.origin}/hidden?code=hidden"
        error = raised(server, status=status, headers={"Location": location})
        assert (elsewhere.requests(), type(error)) == ([], SinkError)
        assert f"it points to {elsewhere.origin}: set the receiver" in str(error)
        assert "hidden" not in str(error)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("", None),
        ("120", 120.0),
        ("0", None),
        ("-5", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("9" * 400, None),
        (format_datetime(SAMPLE_TIME + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(SAMPLE_TIME - timedelta(seconds=90), usegmt=True), None),
        ("Sun, 01 Mar 2026 12:00:30 -0000", 30.0),
        ("Sun, 99 Mar 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after_is_read_with_care(header: str | None, expected: float | None) -> None:
    """Retry-After is read as seconds or a date; a past, invalid or infinite value is ignored."""
    assert expected == seconds_to_wait(header, now=SAMPLE_TIME)


@pytest.mark.parametrize(
    ("others", "record", "expected"),
    [
        ({}, sample_heartbeat(), True),
        ({"template": "x"}, sample_heartbeat(), False),
        ({"template": "x"}, sample_record(), True),
        ({"template": "x", "types": ["seb.bridge.*"]}, sample_heartbeat(), True),
    ],
)
def test_a_templated_webhook_gets_no_heartbeats(
    server: HttpServer, others: dict[str, Any], record: Record, expected: bool
) -> None:
    """A webhook without a template gets heartbeats; one with a template gets them only if its
    `types` ask for them.
    """
    assert expected == hasty(server, **others).accepts(
        record.type, concerns_this_vm=record.concerns_this_vm
    )


def test_a_template_replaces_the_body_and_is_what_is_signed(server: HttpServer) -> None:
    """The rendered body is sent as JSON and signed; a record that the template cannot render is
    dead at once, with the template's line as the reason.
    """
    template = '{"text":\n{{ (vm.name ~ " " ~ event.eventType) | tojson }}}'
    sink = hasty(server, template=template)
    sink.deliver([sample_record()])
    (request,) = server.requests()
    assert request.body == b'{"text":\n"db-0 Freeze"}'
    assert request.headers["content-type"] == "application/json"
    Webhook(KEY).verify(request.body, request.headers)
    with pytest.raises(SinkRejected, match="template, line 2: ") as caught:
        sink.deliver([sample_heartbeat()])
    assert (caught.value.tries, len(server.requests())) == (1, 1)


def test_a_template_file_that_does_not_open_holds_up_only_its_own_worker(
    server: HttpServer,
) -> None:
    """A sink is made on the main thread, also in place of a stuck one; it opens on its own."""
    text = "{{ vm.name | tojson }}"
    with held(text) as hold:
        hold.release(text)
        first = hasty(server, template=f"file:{hold.path}")
        hold.hold()
        sink = call_with_timeout(20.0, lambda: WebhookSink("ops", first.settings, first.context))
        with pytest.raises(StuckError):
            call_with_timeout(1.0, sink.open)
        hold.release(text)
        sink.deliver([sample_record()])
        sink.close()
    assert server.requests()[-1].body == b'"db-0"'


def test_a_template_file_that_is_gone_is_said_and_tried_again(
    server: HttpServer, tmp_path: Path
) -> None:
    """It was there at the start; the records wait for it."""
    file = tmp_path / "template"
    file.write_text("{{ vm.name | tojson }}")
    sink = hasty(server, template=f"file:{file}")
    file.unlink()
    with pytest.raises(SinkError, match="the template's file cannot be read: No such file"):
        sink.open()
    file.write_text("{{ vm.name | tojson }}")
    sink.deliver([sample_record()])
    assert server.requests()[-1].body == b'"db-0"'
