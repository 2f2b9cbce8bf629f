"""The Event Hubs sink: what `seb check` asks the hub."""

from pathlib import Path
from typing import Any

import pytest
from support.amqp.cases import (
    HUB,
    everything_about,
    forget_stuck_threads,
    sink_for,
)
from support.amqp.server import SHARED_KEY, EventHubServer, HubFault

from sinks.base import Sink, SinkError
from sinks.testing import sample_record


def texts(sink: Sink[Any]) -> list[tuple[str, str]]:
    """Return the lines of `check`, without their remedies."""
    return [(line.level, line.text) for line in sink.check()]


def test_the_file_is_read_at_each_open(hub: EventHubServer, tmp_path: Path) -> None:
    """A key that was rotated in the file is used from the next connection on; a file that vanishes,
    breaks or names a remote host without TLS is an error by its setting, until it is good again.
    """
    file, good = tmp_path / "connection", hub.connection_string(HUB)
    file.write_text(hub.connection_string(HUB, key="b2xkIGtleQ=="))
    sink = sink_for(hub, connection_string_file=file)
    sink.open()
    sink.close()
    old = hub.tokens[-1]
    for text, words in (
        (None, "cannot be read"),
        ("nonsense", "connection_string_file: "),
        (good.replace("127.0.0.1", "hub.example.com"), "file: UseDevelopmentEmulator"),
    ):
        file.unlink() if text is None else file.write_text(text)
        with pytest.raises(SinkError, match=words) as caught:
            sink.open()
        assert SHARED_KEY not in everything_about(caught.value)
        ((level, told),) = texts(sink)
        assert (level, words in told) == ("fail", True)
    file.write_text(good + "\n")
    sink.open()
    sink.deliver([sample_record()])
    sink.close()
    assert old != hub.tokens[-1]
    assert len(hub.messages(HUB)) == 1


def test_check_counts_the_partitions(hub: EventHubServer) -> None:
    """`check` says that sending is allowed, and how many partitions there are."""
    (_, connected), (_, counted) = texts(sink_for(hub))
    assert connected.endswith("connected without TLS, as an emulator on this machine, may send")
    assert counted.endswith("2 partitions")


@pytest.mark.parametrize(
    ("fault", "seconds", "levels"),
    [
        (HubFault.NO_MANAGEMENT, 2.0, ["ok", "warn"]),
        (HubFault.MANAGEMENT_STATUS, 2.0, ["ok", "warn"]),
        (HubFault.SILENT, 1.0, ["fail"]),
        (HubFault.NO_CBS, 1.0, ["fail"]),
        (HubFault.NO_ATTACH, 1.0, ["fail"]),
    ],
)
def test_check_never_hangs(
    hub: EventHubServer,
    monkeypatch: pytest.MonkeyPatch,
    fault: HubFault,
    seconds: float,
    levels: list[str],
) -> None:
    """A key that may send and not list partitions is enough; a hub that stops answering becomes a
    line, in time, and no thread is left.
    """
    monkeypatch.setattr("sinks.kinds.eventhub.check.CHECK_SECONDS", seconds)
    hub.misbehave(fault)
    lines = texts(sink_for(hub))
    assert [level for level, _ in lines] == levels
    assert levels != ["fail"] or "no answer in time" in lines[0][1]
    hub.stop()
    forget_stuck_threads()
