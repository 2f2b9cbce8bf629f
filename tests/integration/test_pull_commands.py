"""Commands by HTTPS pull, end to end: fetched, carried out, and answered at the same place."""

import json
from datetime import UTC, datetime
from pathlib import Path

from support.eventually import eventually
from support.process.bridge import BridgeProcess, fast
from support.sinks.http_server import HttpServer

from bridge.approval import signing
from bridge.approval.signing import Order
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator


def test_a_command_that_is_pulled_is_carried_out(tmp_path: Path) -> None:
    """The event starts, and each receipt is posted; the same command again acts only once."""
    signing.write_private(
        signing.generate(issuer="https://control.example", kid="k1", alg="ES256"),
        tmp_path / "key.json",
    )
    key = signing.read_private(tmp_path / "key.json")
    public = signing.public(signing.read_jwk(tmp_path / "key.json"))
    (tmp_path / "trust.json").write_text(json.dumps({"keys": [public]}))
    with HttpServer() as server, Simulator(approval_delay=0.1) as imds:
        event = imds.announce(SimulatedEvent())
        env = {
            **fast(imds.url, tmp_path),
            "SEB_SINK__STDOUT__FORMAT": "json",
            "SEB_APPROVAL__TRUST": str(tmp_path / "trust.json"),
            "SEB_COMMANDS__PULL_URL": f"{server.origin}/commands",
            "SEB_COMMANDS__PULL_TOKEN": "token-that-is-secret",
        }
        with BridgeProcess("run", env=env, home=tmp_path) as bridge:
            (record,) = bridge.wait_for_records(1, types="seb.event.scheduled")
            order = Order(
                vm_id=imds.vm.vm_id,
                subject="anna",
                event_id=event.event_id,
                fingerprint=record["data"]["fingerprint"],
            )
            token = signing.sign(order, key, now=datetime.now(UTC), lifetime=60).decode()

            def posted() -> list[str]:
                asked = [each for each in server.requests() if each.method == "POST"]
                assert {each.target for each in asked} <= {"/commands/receipts"}
                data = [json.loads(each.body)["data"] for each in asked]
                return [f"{each['state']} {each['reason']}" for each in data]

            server.answer(status=200, body=json.dumps([token, token]).encode())
            eventually(lambda: len(posted()) >= 4, what="four receipts")
            told = posted()
            assert bridge.stop() == 0
            assert "token-that-is-secret" not in bridge.errors
    assert [each for each in told if each != "rejected replayed"] == [
        "accepted None",
        "posted None",
        "confirmed None",
    ]
    assert "rejected replayed" in told
    assert [approval.started for approval in imds.approvals] == [(event.event_id,)]
