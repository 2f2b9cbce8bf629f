"""Receipts are records like any other: at every kind of sink, the same bytes, and valid."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
from support.process.bridge import run_seb
from support.process.launch import Launch
from support.sinks.five import FiveSinks

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

RULES = json.dumps(
    [{"name": "freezes", "event_type": ["Freeze"]}, {"name": "no", "max_resources": 0}]
)


def is_receipt(body: bytes) -> bool:
    """Whether these bytes are a receipt."""
    return bool(json.loads(body)["type"] == "seb.approval.v1")


def test_receipts_are_at_every_sink(simulator: Simulator, launch: Launch, tmp_path: Path) -> None:
    """An approval and a refusal by rules: each receipt reaches each sink with the same bytes."""
    with FiveSinks(tmp_path) as sinks:
        bridge = launch(SEB_APPROVAL__RULES=RULES, **sinks.env)
        bridge.wait_for_log("started")
        simulator.announce(SimulatedEvent(event_type="Redeploy"))
        simulator.announce(SimulatedEvent(event_type="Freeze"))
        bridge.wait_for_records(4, types="seb.approval")
        assert bridge.stop() == 0
        everything = sinks.received(bridge)
        on_topic = [
            each.payload for each in sinks.seen.messages() if each.topic.endswith("/receipt")
        ]
    everything["mqtt"] = [*on_topic]
    receipts = {name: [b for b in bodies if is_receipt(b)] for name, bodies in everything.items()}
    states = [json.loads(body)["data"]["state"] for body in receipts["file"]]
    assert states == ["rejected", "accepted", "posted", "confirmed"]
    assert dict.fromkeys(receipts, receipts["file"]) == receipts
    shown = json.loads(run_seb("schema", home=tmp_path).out)
    right = jsonschema.Draft202012Validator(shown)
    for body in receipts["file"]:
        right.validate(json.loads(body))
