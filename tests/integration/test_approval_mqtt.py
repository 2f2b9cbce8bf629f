"""Approval over a real broker, by a control plane that shares no code with the bridge."""

import itertools
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from support.commands.approval_over_mqtt import CONTROL, OTHER_VM, ApprovalOverMqtt
from support.commands.control_plane import IssuerKey
from support.eventually import eventually
from support.faults.process import usage
from support.ground.doc_page import blocks
from support.mqtt.mosquitto import Mosquitto
from support.process.bridge import BridgeProcess

from bridge.simulator.events import SimulatedEvent
from wire.schema import schema

NOT_AUTHORIZED = 0x87
STEPS = ["accepted", "posted", "confirmed"]


def access_list() -> list[str]:
    """Return the lines of the access list in the documentation."""
    (block,) = blocks("docs/control-plane.md", "mosquitto")
    return block.text.splitlines()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ApprovalOverMqtt]:
    """Broker, IMDS and control plane, with the documentation's access list."""
    with ApprovalOverMqtt(tmp_path, acl=access_list()) as made:
        yield made


@pytest.fixture
def bridge(stage: ApprovalOverMqtt) -> Iterator[BridgeProcess]:
    """A running bridge that listens for commands."""
    with stage.bridge() as made:
        made.wait_for_log("started")
        stage.line.wait_for(lambda each: each.record["type"] == "seb.bridge.started.v1")
        yield made


def test_an_event_is_approved_over_mqtt(stage: ApprovalOverMqtt, bridge: BridgeProcess) -> None:
    """A signed command starts the event; each step is a receipt with the jti as its Correlation
    Data, and the other sinks get the same bytes.
    """
    record = stage.announce().record
    event_id = record["data"]["event"]["eventId"]
    stage.send(stage.signer.approve(record, jti="one", rsn="drained"))
    stage.line.wait_for_step("one", "confirmed")
    receipts = stage.line.receipts("one")
    assert [each.data["state"] for each in receipts] == STEPS
    assert [each.correlation for each in receipts] == [b"one"] * 3
    assert [event_id] == stage.effective()
    assert len(stage.simulator.approvals) == 1
    stage.line.wait_for_event(event_id, "started")
    right = jsonschema.Draft202012Validator(schema())
    for each in receipts:
        right.validate(each.record)
    assert bridge.stop() == 0
    written = (stage.home / "records.jsonl").read_bytes().splitlines()
    assert [each.body for each in receipts] == [each for each in written if b'"jti"' in each]


def test_a_command_reaches_imds_soon(stage: ApprovalOverMqtt) -> None:
    """A command leads to a POST well within the time of one poll, at any polling interval."""
    with stage.bridge({"SEB_POLL_INTERVAL": "2"}) as slow:
        slow.wait_for_log("started")
        events = [stage.simulator.announce(SimulatedEvent()) for _ in range(5)]
        delays = []
        for event in events:
            record = stage.line.wait_for_event(event.event_id).record
            before = len(stage.simulator.approvals)
            sent = stage.send(stage.signer.approve(record, jti=event.event_id))
            stage.line.wait_for_step(event.event_id, "posted")
            delays.append(stage.simulator.approvals[before].time - sent)
    assert statistics.median(delays) < 1.0


def test_a_flood_of_bad_commands(stage: ApprovalOverMqtt, bridge: BridgeProcess) -> None:
    """10,000 bad commands delay no poll and no delivery, use no memory, cause no POST, and get few
    answers.
    """
    record, vm_id, signer = stage.announce().record, stage.vm_id, stage.signer
    tokens = [b"junk", b"A" * 8193]
    tokens += [each.approve(record) for each in (IssuerKey("key-9"), IssuerKey("key-1"))]
    tokens += [signer.approve(record, **wrong) for wrong in ({"exp": 1}, {"aud": "x"}, {"jti": 7})]
    before, gets = usage(bridge.pid).memory, stage.simulator.gets
    delays = []
    for number in range(10_000):
        stage.line.publish(vm_id, tokens[number % len(tokens)])
        if number % 2000 == 1999:
            event = stage.simulator.announce(SimulatedEvent())
            asked = time.monotonic()
            delays.append(stage.line.wait_for_event(event.event_id).time - asked)
    numbers = itertools.count()

    def answered() -> bool:
        """Return whether a good command is answered: after a flood it is, within it may be
        dropped.
        """
        stage.send(signer.ping(vm_id, jti=f"ping-{next(numbers)}"))
        return any(each.data["jti"].startswith("ping-") for each in stage.line.receipts())

    eventually(answered, what="an answer to a ping")
    assert stage.simulator.approvals == []
    assert stage.simulator.gets - gets > 5
    assert max(delays) < 30.0
    assert usage(bridge.pid).memory - before < 20
    assert len(stage.line.receipts()) < 1000


def test_a_dry_run_approves_nothing(stage: ApprovalOverMqtt) -> None:
    """A dry run approves nothing, whatever the rules say."""
    rules = json.dumps([{"name": "mine"}])
    env = {**stage.env, "SEB_APPROVAL__RULES": rules}
    with BridgeProcess("run", "--dry-run", env=env, home=stage.home) as bridge:
        bridge.wait_for_log("started")
        stage.simulator.announce(SimulatedEvent())
        bridge.wait_for_records(1, types="seb.event.")
        assert stage.simulator.wait_until_served(gets=5)
        assert bridge.stop() == 0
    assert stage.simulator.approvals == []


def publish_as(broker: Mosquitto, user: str, topic: str) -> int:
    """Return the broker's answer to a message of that user."""
    codes: list[int] = []
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.username_pw_set(user, broker.users[user])
    client.on_publish = lambda _client, _data, _mid, code, _told: codes.append(code.value)
    client.connect(broker.host, broker.port)
    client.loop_start()
    client.publish(topic, b"{}", 1).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()
    return codes[0]


def test_the_access_list_allows_no_more_than_it_says(stage: ApprovalOverMqtt) -> None:
    """A VM cannot publish another VM's messages or commands, and the control plane can publish
    commands only.
    """
    for topic in ("event", "receipt", "state", "status", "command"):
        own = f"seb/v1/default/vm/{stage.vm_id}/{topic}"
        other = f"seb/v1/default/vm/{OTHER_VM}/{topic}"
        wants = [(stage.vm_id, own), (stage.vm_id, other), (CONTROL, own)]
        refused = [publish_as(stage.broker, *each) == NOT_AUTHORIZED for each in wants]
        assert refused == [topic == "command", True, topic != "command"], topic
