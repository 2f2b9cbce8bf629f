"""Bad answers of IMDS: no event is lost or ended by mistake, and the log has one line."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from support.process.bridge import BridgeProcess
from support.process.launch import Launch

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

HOSTILE = {
    "not UTF-8": b'{"DocumentIncarnation":9,"Events":["\xff\xfe"]}',
    "deep nesting": b'{"Events":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "10 MB": b'{"DocumentIncarnation":9,"Events":[],"x":"' + b"x" * 10_000_000 + b'"}',
    "a nameless entry": b'{"DocumentIncarnation":9,"Events":[null,7,"x",[]]}',
}


@dataclass(frozen=True, kw_only=True)
class SharedBridge:
    """One bridge for all tests of this module."""

    simulator: Simulator
    bridge: BridgeProcess

    def trouble(self) -> list[dict[str, Any]]:
        """Return the lines about trouble so far."""
        return [each for each in self.bridge.logs() if each["level"] in ("warning", "error")]

    def follow(self, misbehave: Callable[[], None]) -> None:
        """Check that a pending event outlives the trouble, which is logged in one line, and then
        ends.
        """
        before, said = len(self.bridge.records), len(self.trouble())
        event = self.simulator.announce(SimulatedEvent())
        self.wait_for(before + 1)
        misbehave()
        self.simulator.start_event(event.event_id)  # also heals what was served by hand
        self.wait_for(before + 2)
        self.simulator.end_event(event.event_id)
        self.wait_for(before + 3)
        records = self.bridge.records[before:]
        assert [(r["type"].split(".")[2], r["data"]["revision"]) for r in records] == [
            ("scheduled", 1),
            ("started", 2),
            ("ended", 3),
        ]
        (line,) = self.trouble()[said:]
        assert len(json.dumps(line)) < 500
        assert "Traceback" not in self.bridge.errors

    def wait_for(self, count: int) -> None:
        """Wait for so many records in all."""
        self.bridge.wait_until(lambda: len(self.bridge.records) >= count, f"record {count}")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBridge]:
    """The bridge and its IMDS."""
    with ExitStack() as stack, Simulator() as simulator:
        launch = Launch(stack, simulator.url, tmp_path_factory.mktemp("bad"))
        bridge = launch()
        bridge.wait_for_records(1)
        yield SharedBridge(simulator=simulator, bridge=bridge)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document(running: SharedBridge, name: str) -> None:
    """A hostile document is logged in one line, and the next good document continues from the last
    one.
    """

    def serve() -> None:
        running.simulator.serve(HOSTILE[name])
        assert running.simulator.wait_until_served(gets=2)

    running.follow(serve)
