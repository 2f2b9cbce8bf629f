from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.amqp.cases import (
    HUB,
    everything_about,
    forget_stuck_threads,
    sink_for,
)
from support.amqp.server import SHARED_KEY, EventHubServer, Fault

from sinks.base import Sink, SinkError
from sinks.testing import sample_record

# The connection string's file.


def test_the_file_is_read_at_each_open(hub: EventHubServer, tmp_path: Path) -> None:
    """A key that was rotated in the file is used from the next connection on."""
    file = tmp_path / "connection"
    file.write_text(hub.connection_string(HUB, key="b2xkIGtleQ=="), encoding="utf-8")
    sink = sink_for(hub, connection_string_file=file)
    sink.open()
    sink.close()
    old = hub.tokens[-1]
    file.write_text(hub.connection_string(HUB, key="bmV3IGtleQ==") + "\n", encoding="utf-8")
    sink.open()
    sink.deliver([sample_record()])
    sink.close()
    assert old != hub.tokens[-1]
    assert len(hub.messages(HUB)) == 1


def test_a_file_that_becomes_unsafe_is_refused(hub: EventHubServer, tmp_path: Path) -> None:
    """A remote host in an emulator string is refused at the next open too, unread by the SDK."""
    file = tmp_path / "connection"
    file.write_text(hub.connection_string(HUB), encoding="utf-8")
    sink = sink_for(hub, connection_string_file=file)
    unsafe = hub.connection_string(HUB).replace("127.0.0.1", "hub.example.com")
    file.write_text(unsafe, encoding="utf-8")
    with pytest.raises(SinkError, match="connection_string_file: UseDevelopmentEmulator") as caught:
        sink.open()
    assert SHARED_KEY not in everything_about(caught.value)


def test_a_file_that_vanishes_is_an_error(hub: EventHubServer, tmp_path: Path) -> None:
    """A secret that is gone is told by its path, and the sink recovers when it is back."""
    file = tmp_path / "connection"
    file.write_text(hub.connection_string(HUB), encoding="utf-8")
    sink = sink_for(hub, connection_string_file=file)
    file.unlink()
    with pytest.raises(SinkError, match="cannot be read"):
        sink.open()
    file.write_text(hub.connection_string(HUB), encoding="utf-8")
    sink.open()
    sink.close()


# check


def texts(sink: Sink[Any]) -> list[tuple[str, str]]:
    """The lines of `check`, without their remedies."""
    return [(line.level, line.text) for line in sink.check()]


def test_check_counts_the_partitions(hub: EventHubServer) -> None:
    """`check` says that sending is allowed, and how many partitions there are."""
    (_, connected), (_, counted) = texts(sink_for(hub))
    assert connected.endswith("connected without TLS, as an emulator on this machine, may send")
    assert counted.endswith("2 partitions")


@pytest.mark.parametrize("fault", [Fault.NO_MANAGEMENT, Fault.MANAGEMENT_STATUS])
def test_check_warns_where_only_the_properties_fail(
    hub: EventHubServer, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """A key that may send but not look is good enough."""
    monkeypatch.setattr("sinks.eventhub.check.CHECK_SECONDS", 2.0)
    hub.misbehave(fault)
    lines = texts(sink_for(hub))
    assert [level for level, _ in lines] == ["ok", "warn"]
    hub.stop()
    forget_stuck_threads()


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.NO_CBS, Fault.NO_ATTACH])
def test_check_never_hangs(
    hub: EventHubServer, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """A peer that stops answering is a line that says so, in time, and leaves no thread."""
    monkeypatch.setattr("sinks.eventhub.check.CHECK_SECONDS", 1.5)
    hub.misbehave(fault)
    ((level, text),) = texts(sink_for(hub))
    assert (level, "no answer in time" in text) == ("fail", True)
    forget_stuck_threads()


def test_check_names_the_setting_to_correct(hub: EventHubServer, tmp_path: Path) -> None:
    """Where the file broke after the start, `check` says which setting it belongs to."""
    file = tmp_path / "connection"
    file.write_text(hub.connection_string(HUB), encoding="utf-8")
    sink = sink_for(hub, connection_string_file=file)
    file.write_text("nonsense", encoding="utf-8")
    ((level, text),) = texts(sink)
    assert (level, text.split(":")[0]) == ("fail", "connection_string_file")
