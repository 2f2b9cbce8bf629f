import time

import pytest
from support.amqp.cases import HUB, bodies, records, sink_for
from support.amqp.server import EventHubServer
from support.faults.proxy import FaultProxy, Spoil

from sinks.base import SinkError
from sinks.eventhub.sink import BatchSize

PATIENCE = 60.0


def test_a_size_halves_down_to_one_and_doubles_up_to_the_most() -> None:
    """It halves with each failure, from what was really sent, and grows with quick answers only:
    after a slow one, twice as many might not come in time.
    """
    pace = BatchSize(most=100, seconds=8.0)
    sizes = [pace.size]
    for records_sent in (100, 30, 15, 7, 3, 1, 1):
        pace.failed(records_sent)
        sizes.append(pace.size)
    assert sizes == [100, 50, 15, 7, 3, 1, 1, 1]
    for _ in range(8):
        pace.sent(0.1)
        pace.sent(2.1)
        sizes.append(pace.size)
    assert sizes[8:] == [2, 4, 8, 16, 32, 64, 100, 100]


def test_a_backlog_gets_over_a_line_that_is_too_slow_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records that cannot all be sent in one send's time are sent in several, and each counts."""
    monkeypatch.setattr("sinks.eventhub.sink.SEND_SECONDS", 0.5)
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


def test_a_turn_that_lasts_ends_before_it_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the hub has acknowledged by then is told, and the rest is for the next turn."""
    monkeypatch.setattr("sinks.eventhub.sink.TURN_SECONDS", 0.0)
    sent = records(10)
    with EventHubServer(max_message_size=4 * len(sent[0].body)) as server:
        sink = sink_for(server)
        sink.open()
        with pytest.raises(SinkError, match="the line is slow") as caught:
            sink.deliver(sent)
        sink.close()
        assert caught.value.delivered == len(server.messages(HUB)) > 0
