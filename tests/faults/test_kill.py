"""kill -9 at random moments: nothing lost, no two ids for one fact, order per sink kept."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bridge_process import BridgeProcess, run_seb
from five_sinks import FiveSinks
from restless_imds import Observations, RestlessImds

from bridge.simulator import Simulator

SINKS = ("file", "webhook", "mqtt")
LIFE = (0.05, 1.5)
"""Seconds from the start of a process to its death: from before it has read its settings."""


class Killed:
    """A bridge that was killed so many times, and then ran to a good end."""

    def __init__(self, home: Path, *, rounds: int, seed: int) -> None:
        self._home = home
        draw = random.Random(seed)
        with FiveSinks(home) as sinks, Simulator() as simulator:
            self.env = self._environment(sinks, simulator)
            self.observed = Observations(simulator)
            with RestlessImds(simulator, seed=seed, pause=(0.05, 0.5)) as imds:
                for _ in range(rounds):
                    self._life(draw.uniform(*LIFE))
                imds.settle()
            self.code = self._last_life(simulator)
            everything = sinks.received()
        self.received = {name: everything[name] for name in SINKS}
        self.documents = len(simulator.history)

    def _environment(self, sinks: FiveSinks, simulator: Simulator) -> dict[str, str]:
        wanted = tuple(f"SEB_SINK__{name.upper()}__" for name in SINKS)
        return {
            **{name: value for name, value in sinks.env.items() if name.startswith(wanted)},
            "SEB_IMDS__URL": simulator.url,
            "SEB_STATE_DIR": str(self._home / "state"),
            "SEB_POLL_INTERVAL": "0.1",
            "SEB_HEARTBEAT_INTERVAL": "0",
        }

    def _life(self, seconds: float) -> None:
        self.observed.process_starts()
        with BridgeProcess("run", env=self.env, home=self._home) as bridge:
            threading.Event().wait(seconds)  # the moment of death is the experiment
            bridge.kill()
        self.observed.process_ended()

    def _last_life(self, simulator: Simulator) -> int:
        self.observed.process_starts()
        with BridgeProcess("run", env=self.env, home=self._home) as bridge:
            bridge.wait_for_log("started")
            assert simulator.wait_until_served(gets=2)
            code = bridge.stop()
        self.observed.process_ended()
        return code

    def records(self, sink: str) -> list[dict[str, Any]]:
        """What arrived at a sink, repetitions included."""
        return [json.loads(body) for body in self.received[sink]]

    def unique(self) -> list[dict[str, Any]]:
        """Every record once, in the order of the stream."""
        by_sequence = {record["sequence"]: record for record in self.records("file")}
        return [by_sequence[sequence] for sequence in sorted(by_sequence)]


def check_all(killed: Killed) -> None:
    """Everything that is promised."""
    assert killed.code == 0
    check_nothing_is_lost(killed)
    check_one_id_per_fact(killed)
    for sink in SINKS:
        check_order(killed.records(sink))
        bodies = {record["sequence"]: body for record, body in pairs(killed, sink)}
        assert bodies == {record["sequence"]: body for record, body in pairs(killed, "file")}
        assert len(bodies) == len(set(killed.received[sink])), "one sequence, one body"


def pairs(killed: Killed, sink: str) -> list[tuple[dict[str, Any], bytes]]:
    """Records with their bytes."""
    return list(zip(killed.records(sink), killed.received[sink], strict=True))


def check_nothing_is_lost(killed: Killed) -> None:
    """Each state that a process must have seen has its record, and each event its end."""
    recorded = {
        (record["data"]["event"]["eventId"], record["data"]["fingerprint"])
        for record in killed.unique()
        if record["type"].startswith("seb.event.")
    }
    lost = killed.observed.facts() - recorded
    assert lost == set()
    for history in by_event(killed.unique()).values():
        assert history[-1]["data"]["transition"] == "ended"


def by_event(records: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The records of each event, in order."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        if record["type"].startswith("seb.event."):
            found[record["data"]["event"]["eventId"]].append(record)
    return found


def check_one_id_per_fact(killed: Killed) -> None:
    """A fact has one id however often it was seen, and one record in the stream."""
    for history in by_event(killed.unique()).values():
        assert [each["data"]["revision"] for each in history] == list(range(1, len(history) + 1))
        ids = {each["id"] for each in history}
        facts = {(each["data"]["transition"], each["data"]["fingerprint"]) for each in history}
        assert len(history) == len(ids) == len(facts)
        for before, after in pairwise(history):
            assert before["data"]["transition"] != "ended", "ids never return here"
            if after["data"]["transition"] == "ended" and before["data"]["transition"] == "started":
                assert after["data"]["event"]["eventStatus"] == "Completed"


def check_order(records: Sequence[dict[str, Any]]) -> None:
    """A sink gets record after record; a repetition may step back, but never ahead."""
    highest = 0
    for record in records:
        assert int(record["sequence"]) <= highest + 1
        highest = max(highest, int(record["sequence"]))
    assert {int(record["sequence"]) for record in records} == set(range(1, highest + 1))
    assert len({record["stream"] for record in records}) == 1


def figures(killed: Killed, rounds: int) -> str:
    """What was tried, in a line."""
    count = len(killed.unique())
    repeated = {sink: len(killed.received[sink]) - count for sink in SINKS}
    return (
        f"kill -9: {rounds} rounds, {killed.documents} documents, "
        f"{len(killed.observed.documents)} seen for certain, {len(killed.observed.facts())} facts "
        f"in them, {count} records, repeated {repeated}, lost 0"
    )


def try_rounds(home: Path, rounds: int, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Kill, look, and say what was found."""
    killed = Killed(home, rounds=rounds, seed=seed)
    check_all(killed)
    outbox = json.loads(run_seb("outbox", "list", "--json", home=home, env=killed.env).out)
    assert [(each["backlog"], each["dead"]) for each in outbox["sinks"]] == [(0, 0)] * len(SINKS)
    with capsys.disabled():
        print(f"\n{figures(killed, rounds)}")


def test_kill_at_random_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twelve lives that end in kill -9, and a thirteenth that ends well."""
    try_rounds(tmp_path, 12, seed=12, capsys=capsys)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_a_hundred_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same a hundred times over, on one store."""
    try_rounds(tmp_path, 100, seed=100, capsys=capsys)
