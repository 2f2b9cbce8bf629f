"""Receipts, which the sink posts to the control plane that it polls for commands."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from support.eventually import eventually
from support.sinks.destination import FarEnd
from support.sinks.http_server import HttpServer, Request

from sinks.base import Sink, SinkError, SinkPaused, SinkRejected
from sinks.http.client import HttpLimits
from sinks.kinds.pull import PullSink
from sinks.kinds.pull.settings import PullSettings
from sinks.testing import BRIDGE_TYPES, EVENT_TYPES, SinkContract, sample_context, sample_record
from wire.record import APPROVAL

PATH = "/fleet/path-that-is-secret"
TOKEN = "token-that-is-secret"


class Hasty(PullSink):
    """The sink with time limits that are short enough for a test."""

    LIMITS: ClassVar[HttpLimits] = HttpLimits(connect=2.0, read=1.0, total=2.5)
    RECEIPT_LIMITS: ClassVar[HttpLimits] = HttpLimits(connect=2.0, read=1.0, total=2.5, body=0.5)


def posted(server: HttpServer) -> list[Request]:
    """Return the receipts that the server got."""
    return [request for request in server.requests() if request.method == "POST"]


class TestContract(SinkContract):
    """The contract of every sink, for receipts."""

    sink_class: ClassVar[type[Sink[Any]]] = Hasty

    @pytest.fixture
    def destination(self, server: HttpServer) -> FarEnd:  # type: ignore[override]
        """A control plane."""
        return FarEnd(
            settings={"url": f"{server.origin}{PATH}", "token": TOKEN},
            secrets=[TOKEN, PATH],
            received=lambda: [each.body for each in posted(server)],
            stop=server.stop,
            start=server.start,
        )


def make(server: HttpServer, kind: type[Hasty] = Hasty) -> Hasty:
    """Return a sink that posts to this server, not yet open."""
    settings = {"kind": "pull", "url": f"{server.origin}{PATH}", "token": TOKEN}
    return kind("pull", PullSettings.model_validate(settings), sample_context())


@pytest.fixture
def sink(server: HttpServer) -> Iterator[Hasty]:
    """An open sink whose poll gets no commands."""
    made = make(server)
    made.open()
    yield made
    made.close()


def test_what_is_posted(server: HttpServer, sink: Hasty) -> None:
    """A receipt is posted as a CloudEvent with the record's bytes and the bearer token, to a path
    below the poll's address.
    """
    record = sample_record()
    sink.deliver([record])
    (request,) = posted(server)
    assert (request.target, request.body) == (f"{PATH}/receipts", record.body)
    assert request.headers["content-type"] == "application/cloudevents+json"
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


def test_it_takes_receipts_only(server: HttpServer) -> None:
    """The sink accepts receipts, and neither events nor heartbeats."""
    sink = make(server)
    others = [each for each in (*EVENT_TYPES, *BRIDGE_TYPES) if each != APPROVAL]
    assert sink.accepts(APPROVAL, concerns_this_vm=None)
    assert [False] * len(others) == [sink.accepts(each, concerns_this_vm=True) for each in others]


class Patient(Hasty):
    """The sink with a poll that waits longer than a test lasts."""

    LIMITS: ClassVar[HttpLimits] = HttpLimits(connect=2.0, read=60.0, total=60.0)
    STOP_SECONDS: ClassVar[float] = 5.0


@pytest.fixture
def waiting(server: HttpServer) -> Iterator[Hasty]:
    """An open sink whose poll waits, so that the server's next answer is for a receipt."""
    made = make(server, Patient)
    server.answer(status=204)
    server.answer(mode="silence")
    made.open()
    eventually(lambda: len(server.requests()) == 2, what="it")
    yield made
    made.close()


def test_a_body_without_end_is_not_waited_for(server: HttpServer, waiting: Hasty) -> None:
    """A status of 2xx acknowledges the receipt, also if only the end of the connection ends the
    body.
    """
    server.answer(status=200, mode="drip-close", every=0.01)
    waiting.deliver([sample_record()])
    assert len(posted(server)) == 1


def test_a_refusal_hints_at_the_token(server: HttpServer, waiting: Hasty) -> None:
    """A receipt that is refused with 401 waits until the token is right, and receipts before it are
    not posted again.
    """
    server.answer(status=204)
    server.answer(status=401)
    with pytest.raises(SinkError, match="see that SEB_COMMANDS__PULL_TOKEN") as caught:
        waiting.deliver([sample_record(n) for n in range(1, 4)])
    assert caught.value.delivered == 1


def test_a_receipt_that_is_refused_itself_is_named(server: HttpServer, waiting: Hasty) -> None:
    """A receipt that is refused five times is marked as dead."""
    server.answer(status=204)
    server.answer(status=422)
    with pytest.raises(SinkRejected) as caught:
        waiting.deliver([sample_record(n) for n in range(1, 4)])
    assert (caught.value.delivered, caught.value.tries) == (1, 5)


def test_gone_pauses_the_channel(server: HttpServer, waiting: Hasty) -> None:
    """A 410 pauses the sink until a person acts."""
    server.answer(status=410)
    with pytest.raises(SinkPaused, match="resume it with: seb outbox retry") as caught:
        waiting.deliver([sample_record()])
    assert not caught.value.stays_open


@pytest.mark.parametrize(("status", "error"), [(503, SinkError), (422, SinkRejected)])
def test_a_receipt_that_is_not_taken_cuts_no_poll(
    server: HttpServer, waiting: Hasty, status: int, error: type[SinkError | SinkRejected]
) -> None:
    """Commands come in while a receipt is refused, and the receipt is posted later over a new
    connection.
    """
    server.answer(status=status, headers={"Retry-After": "60"})
    with pytest.raises(error) as caught:
        waiting.deliver([sample_record()])
    assert caught.value.stays_open  # type: ignore[attr-defined]
    waiting.maintain()
    waiting.deliver([sample_record()])
    assert [each.method for each in server.requests()] == ["GET", "GET", "POST", "POST"]


@pytest.mark.parametrize("status", [401, 503])
def test_receipts_go_out_while_commands_cannot_be_fetched(server: HttpServer, status: int) -> None:
    """All waiting receipts are posted before the sink reports that it cannot fetch commands."""
    server.answer(status=status)
    sink = make(server)
    sink.open()
    sink.deliver([sample_record(n) for n in range(1, sink.BATCH + 1)])
    assert len(posted(server)) == sink.BATCH
    with pytest.raises(SinkError, match=f"answered {status}"):
        sink.maintain()
    sink.close()


def test_a_slow_control_plane_gets_the_rest_later(server: HttpServer) -> None:
    """A delivery ends before its deadline with the number of posted receipts, and the next one
    posts the others.
    """

    class Slow(Patient):
        RECEIPT_LIMITS: ClassVar[HttpLimits] = HttpLimits(
            connect=2.0, read=60.0, total=60.0, body=0.5
        )
        BATCH_SECONDS: ClassVar[float] = 1.0

    sink = make(server, Slow)
    server.answer(status=503)
    sink.open()
    server.answer(status=204, delay=1.2)
    with pytest.raises(SinkError, match="the others follow") as caught:
        sink.deliver([sample_record(1), sample_record(2)])
    assert caught.value.delivered == 1
    sink.close()
