"""The access list of the documentation, at a real broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from support.commands.control_plane import Signer, jwks
from support.mqtt.mosquitto import Mosquitto
from support.process.bridge import BridgeProcess, fast
from support.process.control_line import ControlLine

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "control-plane.md"
OTHER = "00000000-0000-0000-0000-000000000002"
NOT_AUTHORIZED = 0x87


def access_list() -> list[str]:
    """The lines between the page's marks."""
    found = re.search(
        r"<!-- begin mosquitto-acl -->\n```\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert found is not None
    return found[1].splitlines()


@pytest.fixture
def imds() -> Iterator[Simulator]:
    """An IMDS with no event yet."""
    with Simulator(approval_delay=0.1) as made:
        yield made


@pytest.fixture
def broker(tmp_path: Path, imds: Simulator) -> Iterator[Mosquitto]:
    """A broker with that list, two VMs and a control plane."""
    users = {imds.vm.vm_id: "one", OTHER: "two", "control": "three"}
    with Mosquitto(tmp_path / "broker", users=users, acl=access_list()) as made:
        yield made


def publish_as(broker: Mosquitto, user: str, topic: str) -> int:
    """What the broker answers to a message of that user's."""
    codes: list[int] = []
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.username_pw_set(user, broker.users[user])
    client.on_publish = lambda _client, _data, _mid, code, _told: codes.append(code.value)
    client.connect(broker.host, broker.port)
    client.loop_start()
    client.publish(topic, b"x", 1).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()
    return codes[0]


def test_everybody_can_do_what_is_needed(
    broker: Mosquitto, imds: Simulator, tmp_path: Path
) -> None:
    """A bridge and a control plane that are kept to the list approve an event between them."""
    signer, trust, vm_id = Signer(), tmp_path / "trust.json", imds.vm.vm_id
    trust.write_text(jwks(signer))
    env = {
        **fast(imds.url, tmp_path),
        "SEB_APPROVAL__TRUST": str(trust),
        "SEB_SINK__MQTT__HOST": broker.host,
        "SEB_SINK__MQTT__PORT": str(broker.port),
        "SEB_SINK__MQTT__USERNAME": vm_id,
        "SEB_SINK__MQTT__PASSWORD": broker.users[vm_id],
        "SEB_SINK__MQTT__COMMANDS": "true",
    }
    bridge = BridgeProcess("run", env=env, home=tmp_path)
    with ControlLine(broker, username="control") as line, bridge:
        bridge.wait_for_log("started")
        event = imds.announce(SimulatedEvent())
        record = line.wait_for_event(event.event_id).record
        line.send(vm_id, signer.approve(record, jti="one"))
        line.wait_for_step("one", "confirmed")
    assert len(imds.approvals) == 1


@pytest.mark.parametrize("topic", ["event", "receipt", "state", "status", "command"])
def test_nobody_can_do_more(broker: Mosquitto, imds: Simulator, topic: str) -> None:
    """A VM writes nothing of another one's and no commands; the control plane only commands."""
    own, other = (f"seb/v1/default/vm/{vm}/{topic}" for vm in (imds.vm.vm_id, OTHER))
    refused = {
        "own": publish_as(broker, imds.vm.vm_id, own),
        "other": publish_as(broker, imds.vm.vm_id, other),
        "control": publish_as(broker, "control", own),
    }
    expected = {
        "own": topic == "command",
        "other": True,
        "control": topic != "command",
    }
    assert expected == {who: code == NOT_AUTHORIZED for who, code in refused.items()}
