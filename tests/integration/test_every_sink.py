"""One bridge with five sinks plays every scenario: each sink gets the same, expected bytes."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.mqtt.subscriber import SeenMessage
from support.process.bridge import BridgeProcess, run_seb
from support.sinks.five_sinks import FiveSinks

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.scenarios import SCENARIOS
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm

VM = SimulatedVm(name="vm-0", tags={"team": "blue", "secret-tag": "hush"})
SPEED = 20_000.0
TOPIC = f"seb/v1/north/vm/{VM.vm_id}"

# By hand from DESIGN.md, section 4: event in order of appearance, transition, status, impact,
# whether it names this VM, revision.
FREEZE = [
    ("A", "scheduled", "Scheduled", "pause", True, 1),
    ("A", "started", "Started", "pause", True, 2),
    ("A", "ended", "Completed", "pause", True, 3),
]
REBOOT = [(*row[:3], "restart", *row[4:]) for row in FREEZE]
REDEPLOY = [(*row[:3], "redeploy", *row[4:]) for row in FREEZE]
DELETE = [(*row[:3], "delete", *row[4:]) for row in FREEZE]
EXPECTED = {
    "live-migration": FREEZE,
    "host-maintenance": FREEZE,
    "user-reboot": REBOOT,
    "redeploy": REDEPLOY,
    "user-redeploy": REDEPLOY,
    "canceled-maintenance": [
        ("A", "scheduled", "Scheduled", "redeploy", True, 1),
        ("A", "ended", "Canceled", "redeploy", True, 2),
    ],
    "preempt": DELETE,
    "rebalance-recommendation": [
        ("A", "scheduled", "Advisory", "none", True, 1),
        ("A", "ended", "Unknown", "none", True, 2),
        ("B", "scheduled", "Scheduled", "delete", True, 1),
        ("B", "started", "Started", "delete", True, 2),
        ("B", "ended", "Completed", "delete", True, 3),
    ],
    "terminate": DELETE,
    "hardware-failure": [
        ("A", "started", "Started", "restart", True, 1),
        ("A", "ended", "Completed", "restart", True, 2),
    ],
    "two-events": [
        ("A", "scheduled", "Scheduled", "restart", True, 1),
        ("B", "scheduled", "Scheduled", "pause", False, 1),
        ("B", "started", "Started", "pause", False, 2),
        ("A", "started", "Started", "restart", True, 2),
        ("A", "ended", "Completed", "restart", True, 3),
        ("B", "ended", "Completed", "pause", False, 3),
    ],
    "many-resources": FREEZE,
    "notice-moved": [
        ("A", "scheduled", "Scheduled", "pause", True, 1),
        ("A", "updated", "Scheduled", "pause", True, 2),
        ("A", "updated", "Scheduled", "pause", True, 3),
        ("A", "started", "Started", "pause", True, 4),
        ("A", "ended", "Completed", "pause", True, 5),
    ],
    # Nobody saw it Started, and its time had come: the bridge does not guess.
    "skipped-incarnation": [
        ("A", "scheduled", "Scheduled", "restart", True, 1),
        ("A", "ended", "Unknown", "restart", True, 2),
    ],
    "incarnation-reset": [
        *FREEZE,
        ("B", "scheduled", "Scheduled", "restart", True, 1),
        ("B", "started", "Started", "restart", True, 2),
        ("B", "ended", "Completed", "restart", True, 3),
    ],
}


@dataclass(frozen=True, kw_only=True)
class RunOfScenarios:
    """The results of one run."""

    code: int
    errors: str
    received: dict[str, list[bytes]]
    scenarios: dict[str, list[dict[str, Any]]]
    """The records of each scenario, in order."""
    pending: list[dict[str, Any]]
    """The events of the retained state while one was pending."""
    announced: dict[str, Any]
    """The record of that event."""
    mqtt: Sequence[SeenMessage]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.received["file"]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunOfScenarios]:
    """The results of a bridge that played every scenario, and was then stopped."""
    home = tmp_path_factory.mktemp("five")
    with FiveSinks(home) as sinks, Simulator(vm=VM, speed=SPEED) as simulator:
        with BridgeProcess("run", env=environment(sinks, simulator, home), home=home) as bridge:
            bridge.wait_for_records(1)
            scenarios = {name: play(name, simulator, bridge) for name in SCENARIOS}
            event = simulator.announce(SimulatedEvent(event_type="Reboot"))
            state = sinks.seen.wait_for(
                lambda seen: seen.topic == f"{TOPIC}/state" and event.event_id in str(seen.payload)
            )
            (announced,) = about(bridge, event.event_id, 1)
            simulator.end_event(event.event_id)
            about(bridge, event.event_id, 2)
            code = bridge.stop()
        yield RunOfScenarios(
            code=code,
            errors=bridge.errors,
            received=sinks.received(bridge),
            scenarios=scenarios,
            pending=json.loads(state.payload)["events"],
            announced=announced,
            mqtt=sinks.seen.messages(),
        )
        assert sinks.hub.bugs == []


def environment(sinks: FiveSinks, simulator: Simulator, home: Path) -> dict[str, str]:
    """Return the variables of the run."""
    return {
        **sinks.env,
        "SEB_IMDS__URL": simulator.url,
        "SEB_STATE_DIR": str(home / "state"),
        "SEB_POLL_INTERVAL": "0.1",
        "SEB_SITE": "north",
        "SEB_IDENTITY__TAGS": '["team"]',
    }


def play(name: str, simulator: Simulator, bridge: BridgeProcess) -> list[dict[str, Any]]:
    """Play a scenario so slowly that the bridge sees each step; return its records."""
    before = len(bridge.records)
    if name == "notice-moved":
        move_notice(simulator)
    else:
        simulator.play(name, hold=10.0)
        assert simulator.wait(30.0)
    count = len(EXPECTED[name])
    bridge.wait_until(lambda: len(bridge.records) >= before + count, name)
    return bridge.records[before:]


def move_notice(simulator: Simulator) -> None:
    """Play this scenario by hand, because NotBefore has whole seconds and the speed leaves none."""
    due = datetime.now(UTC) + timedelta(minutes=15)
    event = simulator.announce(SimulatedEvent(duration=9, not_before=due))
    for change in (
        lambda: simulator.move(event.event_id, due + timedelta(minutes=10)),
        lambda: simulator.move(event.event_id, due),
        lambda: simulator.start_event(event.event_id),
        lambda: simulator.end_event(event.event_id),
    ):
        assert simulator.wait_until_served()
        change()


def about(bridge: BridgeProcess, event_id: str, count: int) -> list[dict[str, Any]]:
    """Return the records about an event, once there are so many."""

    def found() -> list[dict[str, Any]]:
        return [each for each in bridge.records if each["subject"].endswith(event_id)]

    bridge.wait_until(lambda: len(found()) >= count, f"{count} records about {event_id}")
    return found()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_gives_its_records(run: RunOfScenarios, name: str) -> None:
    """A scenario gives records with the expected transitions, statuses, impacts and revisions."""
    letters: dict[str, str] = {}
    found = []
    for record in run.scenarios[name]:
        data = record["data"]
        letter = letters.setdefault(data["event"]["eventId"], "AB"[len(letters) % 2])
        status = data["event"]["eventStatus"]
        impact, affects, revision = data["impact"], data["affectsThisVm"], data["revision"]
        found.append((letter, data["transition"], status, impact, affects, revision))
    assert EXPECTED[name] == found


@pytest.mark.parametrize("sink", ["stdout", "webhook", "mqtt", "eventhub"])
def test_every_sink_gets_the_same_bytes(run: RunOfScenarios, sink: str) -> None:
    """Every sink got the same bytes in the same order."""
    assert run.received["file"] == run.received[sink]


def test_the_run_is_whole(run: RunOfScenarios) -> None:
    """The first record is the start and the last one the stop; the sequence has no gap, no id
    occurs twice, and each record has the site and only the named tag.
    """
    records = run.records
    assert (records[0]["type"], records[-1]["type"]) == (
        "seb.bridge.started.v1",
        "seb.bridge.stopped.v1",
    )
    assert [f"{n:020d}" for n in range(1, len(records) + 1)] == [r["sequence"] for r in records]
    assert len(records) == len({record["id"] for record in records})
    assert len(records) == 2 + 2 + sum(map(len, EXPECTED.values()))
    assert len({record["stream"] for record in records}) == 1
    assert {record["data"]["bridge"]["site"] for record in records} == {"north"}
    assert all(record["data"]["vm"]["tags"] == {"team": "blue"} for record in records)
    assert run.code == 0


def test_every_record_is_valid(run: RunOfScenarios, tmp_path: Path) -> None:
    """Each record is valid against the schema that `seb schema` prints, formats included."""
    schema = json.loads(run_seb("schema", home=tmp_path).out)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    assert [error.message for each in run.records for error in validator.iter_errors(each)] == []


def test_the_retained_state_is_what_is_pending(run: RunOfScenarios) -> None:
    """While an event is pending, the retained state shows it as its record does, and at the end the
    state is empty.
    """
    data = run.announced["data"]
    shown = {name: run.pending[0][name] for name in ("recordId", "eventId", "fingerprint")}
    assert shown == {
        "recordId": run.announced["id"],
        "eventId": data["event"]["eventId"],
        "fingerprint": data["fingerprint"],
    }
    assert len(run.pending) == 1
    last = [seen for seen in run.mqtt if seen.topic == f"{TOPIC}/state"][-1]
    assert json.loads(last.payload)["events"] == []
    assert last.retain


def test_an_idle_poll_logs_nothing(run: RunOfScenarios) -> None:
    """The log has a line for each transition and each change of a sink's health, and no others."""
    actions = [json.loads(line)["action"] for line in run.errors.splitlines()]
    transitions = [action for action in actions if action.startswith("event.")]
    others = [action for action in actions if not action.startswith("event.")]
    assert len(transitions) == 2 + sum(map(len, EXPECTED.values()))
    assert sorted(others) == ["sink_up"] * 5 + ["started", "stopped"]
