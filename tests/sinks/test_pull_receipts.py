"""Receipts posted to where commands are pulled from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from http_server import HttpServer

from sinks.base import Sink, SinkError, SinkPaused
from sinks.http.client import Limits
from sinks.pull import ReceiptSink
from sinks.pull.settings import PullSettings
from sinks.record import APPROVAL
from sinks.testing import BRIDGE_TYPES, EVENT_TYPES, SinkContract, sample_context, sample_record

PATH = "/fleet/path-that-is-secret"
TOKEN = "token-that-is-secret"


class HastyReceiptSink(ReceiptSink):
    """With limits that a test can wait for."""

    LIMITS: ClassVar[Limits] = Limits(connect=2.0, read=1.0, total=2.5, body=0.5)


class ControlPlane:
    """A server as the far end of a sink."""

    def __init__(self, server: HttpServer) -> None:
        self.server = server

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"url": f"{self.server.origin}{PATH}", "token": TOKEN}

    @property
    def secrets(self) -> Sequence[str]:
        return [TOKEN, PATH]

    def received(self) -> Sequence[bytes]:
        return [request.body for request in self.server.requests()]

    def stop(self) -> None:
        self.server.stop()

    def start(self) -> None:
        self.server.start()


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of whoever runs the tests are not part of them."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A control plane that takes everything."""
    with HttpServer() as running:
        yield running


class TestContract(SinkContract):
    """What every sink must do."""

    sink_class: ClassVar[type[Sink[Any]]] = HastyReceiptSink

    @pytest.fixture
    def destination(self, server: HttpServer) -> ControlPlane:  # type: ignore[override]
        """A control plane."""
        return ControlPlane(server)


def make(server: HttpServer) -> HastyReceiptSink:
    """A sink that posts to this server."""
    told = PullSettings.model_validate({"kind": "pull", **ControlPlane(server).settings})
    return HastyReceiptSink("pull-receipts", told, sample_context())


def test_what_is_posted(server: HttpServer) -> None:
    """The record's bytes as a CloudEvent, with the bearer token, below the address of the poll."""
    record = sample_record()
    make(server).deliver([record])
    (request,) = server.requests()
    assert (request.method, request.target, request.body) == (
        "POST",
        f"{PATH}/receipts",
        record.body,
    )
    assert request.headers["content-type"] == "application/cloudevents+json"
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


def test_a_body_without_end_is_not_waited_for(server: HttpServer) -> None:
    """2xx is the acknowledgement, also if only the end of the connection ends the body."""
    sink = make(server)
    server.answer(status=200, mode="drip-close", every=0.01)
    sink.open()
    sink.deliver([sample_record()])
    sink.close()
    assert len(server.requests()) == 1


def test_it_takes_receipts_only(server: HttpServer) -> None:
    """No event and no heartbeat is the control plane's to get here."""
    sink = make(server)
    others = [each for each in (*EVENT_TYPES, *BRIDGE_TYPES) if each != APPROVAL]
    assert sink.accepts(APPROVAL, affects_this_vm=None)
    assert [False] * len(others) == [sink.accepts(each, affects_this_vm=True) for each in others]


def test_a_refusal_hints_at_the_token(server: HttpServer) -> None:
    """The receipt is held until the token is right."""
    server.answer(status=401)
    with pytest.raises(SinkError, match="see that SEB_COMMANDS__PULL_TOKEN"):
        make(server).deliver([sample_record()])


def test_gone_pauses_the_receipts(server: HttpServer) -> None:
    """410 wants no more, until a person acts."""
    server.answer(status=410)
    with pytest.raises(SinkPaused, match="let it go on with: seb outbox retry"):
        make(server).deliver([sample_record()])
