"""A broker that refuses records and accepts everything else."""

import json
from pathlib import Path

from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto
from support.mqtt.subscriber import SeenMessage
from support.process.launch import Launch

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator


def test_the_state_stays_true_while_records_are_refused(
    launch: Launch, simulator: Simulator, tmp_path: Path
) -> None:
    """While the broker refuses records, the retained state shows the pending events, and the status
    does not flap.
    """
    base = f"seb/v1/default/vm/{simulator.vm.vm_id}"
    acl = [
        *("user bridge", f"topic write {base}/status", f"topic write {base}/state"),
        *("user reader", "topic readwrite #"),
    ]
    users = {"bridge": "a", "reader": "b"}
    with (
        Mosquitto(tmp_path / "broker", users=users, acl=acl) as broker,
        broker.subscriber(f"{base}/state", f"{base}/status", username="reader") as reader,
    ):
        bridge = launch(
            SEB_SINK__MQTT__HOST=broker.host,
            SEB_SINK__MQTT__PORT=str(broker.port),
            SEB_SINK__MQTT__USERNAME="bridge",
            SEB_SINK__MQTT__PASSWORD="a",
        )
        bridge.wait_for_log("sink_down")
        event = simulator.announce(SimulatedEvent())
        reader.wait_for(lambda seen: shown(seen) == [event.event_id])
        simulator.end_event(event.event_id)
        reader.wait_for(lambda seen: shown(seen) == [])
        eventually(lambda: broker.log.count("Denied PUBLISH") >= 4, what="more tries", timeout=60)
        status = [json.loads(each)["status"] for each in reader.payloads(f"{base}/status")]
        # Mosquitto ends the connection over the first refusal, and over no later one.
        assert status in (["online"], ["online", "offline", "online"])
        assert bridge.stop() == 0


def test_a_refused_state_costs_one_connection(
    launch: Launch, simulator: Simulator, tmp_path: Path
) -> None:
    """While a refused state is tried again, records are delivered, and the status does not flap."""
    base = f"seb/v1/default/vm/{simulator.vm.vm_id}"
    acl = [
        *("user bridge", f"topic write {base}/status", f"topic write {base}/event"),
        *("user reader", "topic readwrite #"),
    ]
    users = {"bridge": "a", "reader": "b"}
    with (
        Mosquitto(tmp_path / "broker", users=users, acl=acl) as broker,
        broker.subscriber(f"{base}/event", f"{base}/status", username="reader") as reader,
    ):
        bridge = launch(
            SEB_SINK__MQTT__HOST=broker.host,
            SEB_SINK__MQTT__PORT=str(broker.port),
            SEB_SINK__MQTT__USERNAME="bridge",
            SEB_SINK__MQTT__PASSWORD="a",
        )
        eventually(lambda: broker.log.count("Denied PUBLISH") >= 3, what="more tries", timeout=60)
        simulator.announce(SimulatedEvent())
        reader.wait_for(lambda seen: b"seb.event.scheduled.v1" in seen.payload)
        status = [json.loads(each)["status"] for each in reader.payloads(f"{base}/status")]
        assert status == ["online", "offline", "online"]
        assert bridge.stop() == 0


def shown(seen: SeenMessage) -> list[str] | None:
    """Return the events that a state shows; None for another message."""
    if not seen.topic.endswith("/state"):
        return None
    return [each["eventId"] for each in json.loads(seen.payload)["events"]]
