"""Documents that hypothesis makes up, served over HTTP to a whole bridge: whatever they hold, each
sink gets records that say the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.documents.replay import Replay, even
from support.documents.shapes import VM_NAME, Entry, Written
from support.documents.strategies import BAD_BODIES, ENTRIES, EVENT_IDS, WRITTEN
from support.eventually import eventually
from support.faults.oracle import Evidence, Figures, judge, outbox_of
from support.mqtt.mosquitto import Mosquitto
from support.mqtt.subscriber import Subscriber
from support.process.bridge import BridgeProcess

from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm
from sinks.record import read_record

Tell = Callable[[Figures], None]
SERVED = st.tuples(
    st.dictionaries(st.sampled_from(EVENT_IDS), ENTRIES, max_size=3),
    WRITTEN,
    st.none() | st.none() | BAD_BODIES,
)
"""The entries of a document, how it is written, and what is served before it, if anything."""


class Reader:
    """A bridge that runs, a subscriber at its broker, and what its records say."""

    def __init__(
        self, simulator: Simulator, bridge: BridgeProcess, seen: Subscriber, home: Path
    ) -> None:
        self.simulator = simulator
        self.bridge = bridge
        self.home = home
        self.documents = 0
        self._seen = seen
        self._replay = Replay()
        self._read = 0

    def look(self, entries: dict[str, Entry], written: Written, before: bytes | None) -> None:
        """Serve a document, after something that is none, and wait until the records say so."""
        if before is not None:
            self.simulator.serve(before)
            assert self.simulator.wait_until_served()
        self.documents += 1
        self.simulator.serve(written.body([each.raw(key) for key, each in entries.items()]))
        wanted = {key.casefold(): even(each.wire(key.casefold())) for key, each in entries.items()}
        self.bridge.wait_until(lambda: self._says() == wanted, "what the document says")

    def _says(self) -> dict[str, Any]:
        lines = self.bridge.output
        for line in lines[self._read :]:
            self._replay.feed(read_record(line.text.rstrip(b"\n")))
        self._read = len(lines)
        return {key: even(data["event"]) for key, data in self._replay.pending.items()}

    def received(self) -> dict[str, list[bytes]]:
        """What every sink has, once each has as much as standard output."""

        def now() -> dict[str, list[bytes]]:
            messages = self._seen.messages()
            return {
                "stdout": [line.text.rstrip(b"\n") for line in self.bridge.output],
                "file": (self.home / "records.jsonl").read_bytes().splitlines(),
                "mqtt": [each.payload for each in messages if each.topic.endswith("/event")],
            }

        wanted = len(self.bridge.output)
        eventually(
            lambda: all(len(each) >= wanted for each in now().values()), what="all, at every sink"
        )
        return now()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """One bridge for many documents."""
    with ExitStack() as stack:
        simulator = stack.enter_context(Simulator(vm=SimulatedVm(name=VM_NAME)))
        broker = stack.enter_context(Mosquitto(tmp_path / "broker"))
        seen = stack.enter_context(broker.subscriber("seb/#"))
        env = environment(simulator, broker, tmp_path)
        bridge = stack.enter_context(BridgeProcess("run", env=env, home=tmp_path))
        bridge.wait_for_log("started")
        yield Reader(simulator, bridge, seen, tmp_path)


def environment(simulator: Simulator, broker: Mosquitto, home: Path) -> dict[str, str]:
    """Three sinks and a fast poll."""
    return {
        "SEB_IMDS__URL": simulator.url,
        "SEB_STATE_DIR": str(home / "state"),
        "SEB_POLL_INTERVAL": "0.1",
        "SEB_HEARTBEAT_INTERVAL": "0",
        "SEB_SINK__STDOUT__FORMAT": "json",
        "SEB_SINK__FILE__PATH": str(home / "records.jsonl"),
        "SEB_SINK__MQTT__HOST": broker.host,
        "SEB_SINK__MQTT__PORT": str(broker.port),
    }


def try_documents(reader: Reader, tell: Tell, examples: int) -> None:
    """Serve so many documents, and judge."""

    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(SERVED)
    def look(served: tuple[dict[str, Entry], Written, bytes | None]) -> None:
        reader.look(*served)

    look()
    reader.look({}, Written(incarnation=0), None)
    code = reader.bridge.stop()
    received = reader.received()
    assert (code, "Traceback" in reader.bridge.errors) == (0, False)
    evidence = Evidence(
        case="IMDS: any document over HTTP",
        rounds=reader.documents,
        received=received,
        standing=json.loads(reader.simulator.history[-1].body),
        outbox=outbox_of(reader.home, {"SEB_STATE_DIR": str(reader.home / "state")}),
    )
    tell(judge(evidence))


def test_a_few_documents(reader: Reader, tell: Tell) -> None:
    """What they say arrives at three sinks."""
    try_documents(reader, tell, 12)


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_many_documents(reader: Reader, tell: Tell) -> None:
    """The same for longer."""
    try_documents(reader, tell, 120)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_most_documents(reader: Reader, tell: Tell) -> None:
    """The same for much longer."""
    try_documents(reader, tell, 3000)
