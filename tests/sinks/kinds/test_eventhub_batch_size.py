"""The Event Hubs sink: how many records one delivery has."""

import time

import pytest
from support.amqp.cases import HUB, bodies, records, sink_for
from support.amqp.server import EventHubServer
from support.faults.proxy import FaultProxy, Spoil

from sinks.base import SinkError
from sinks.kinds.eventhub.sink import BatchSize

PATIENCE = 60.0


def test_a_size_halves_down_to_one_and_doubles_up_to_the_most() -> None:
    """The size halves with each failure, from the number that was sent. It doubles only after quick
    answers, because twice as many might not be sent in time.
    """
    pace = BatchSize(most=100, seconds=8.0)
    sizes = [pace.size]
    for records_sent in (100, 30, 15, 7, 3, 1, 1):
        pace.note_failed(records_sent)
        sizes.append(pace.size)
    assert sizes == [100, 50, 15, 7, 3, 1, 1, 1]
    for _ in range(8):
        pace.note_sent(0.1)
        pace.note_sent(2.1)
        sizes.append(pace.size)
    assert sizes[8:] == [2, 4, 8, 16, 32, 64, 100, 100]


def test_a_backlog_is_delivered_over_a_slow_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backlog that one send cannot transfer in time is sent in several parts, and each part
    counts as delivered.
    """
    monkeypatch.setattr("sinks.kinds.eventhub.sink.SEND_SECONDS", 0.5)
    left = records(6)
    with EventHubServer() as server, FaultProxy(server.port) as line:
        told = server.connection_string(HUB).replace(f":{server.port}/", f":{line.port}/")
        sink = sink_for(server, connection_string=told)
        sink.open()
        line.spoil(Spoil.SLOW)
        begun = time.monotonic()
        while left and time.monotonic() - begun < PATIENCE:
            try:
                sink.deliver(left)
                left = []
            except SinkError as error:
                left = left[error.delivered :]
        sink.close()
        assert left == []
        arrived = list(dict.fromkeys(bodies(server.messages(HUB))))
        assert arrived == [record.body for record in records(6)]


def test_a_long_delivery_ends_before_it_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery ends before its deadline with the number of acknowledged records; the next
    delivery sends the others.
    """
    monkeypatch.setattr("sinks.kinds.eventhub.sink.BATCH_SECONDS", 0.0)
    sent = records(10)
    with EventHubServer(max_message_size=4 * len(sent[0].body)) as server:
        sink = sink_for(server)
        sink.open()
        with pytest.raises(SinkError, match="the line is slow") as caught:
            sink.deliver(sent)
        sink.close()
        assert caught.value.delivered == len(server.messages(HUB)) > 0
