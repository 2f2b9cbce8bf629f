"""The example of the documentation, as a process of its own, against a bridge and a broker."""

import ast
import json
import sys
from pathlib import Path

import pytest
from support.commands.approval_over_mqtt import ApprovalOverMqtt
from support.mqtt.mosquitto import Mosquitto
from support.process.bridge import BridgeProcess, run_seb
from support.sinks.throwaway_ca import ThrowawayCa

from bridge.cli.key_files import write_private
from bridge.simulator.events import SimulatedEvent
from wire.keys import generate

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "control_plane.py"
OURS = {"bridge", "sinks", "wire"}


def test_it_shares_no_code_with_the_bridge() -> None:
    """The example imports PyJWT, paho and Python's own modules only."""
    names = set()
    for node in ast.walk(ast.parse(EXAMPLE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    assert {"jwt", "paho"} == names - sys.stdlib_module_names
    assert not names & OURS


def test_it_trusts_the_ca_that_it_is_given(tmp_path: Path) -> None:
    """The example connects to a broker with a certificate of a private CA."""
    key, ca = tmp_path / "control.jwk", ThrowawayCa(tmp_path / "ca")
    write_private(generate(issuer="https://control.example", kid="k1", alg="EdDSA"), key)
    with Mosquitto(tmp_path / "broker", tls=ca.server()) as broker:
        address = ("--host", broker.host, "--port", str(broker.port), "--key", str(key))
        seb = (sys.executable, str(EXAMPLE))
        trusts = ("--cafile", str(ca.cert))
        with BridgeProcess(*address, *trusts, env={}, home=tmp_path, prefix=seb) as example:
            example.wait_until(lambda: len(example.output) >= 1, "the example")
            assert example.output[0].text.decode().strip() == "listening"
        with BridgeProcess(*address, env={}, home=tmp_path, prefix=seb) as example:
            assert example.wait() != 0
            assert "CERTIFICATE_VERIFY_FAILED" in example.errors


@pytest.mark.parametrize("alg", ["EdDSA", "ES256"])
def test_it_approves_with_a_key_of_seb(tmp_path: Path, alg: str) -> None:
    """The example signs with a key of `seb keys generate`, the event starts, and it prints every
    receipt.
    """
    key = tmp_path / "control.jwk"
    made = run_seb(
        *("keys", "generate", "--issuer", "https://control.example"),
        *("--alg", alg, "--out", str(key)),
        home=tmp_path,
    )
    assert made.code == 0, made.err
    with ApprovalOverMqtt(tmp_path) as stage:
        stage.trust.write_text(made.out)
        address = ("--host", stage.broker.host, "--port", str(stage.broker.port), "--plain")
        example = BridgeProcess(
            *address,
            "--key",
            str(key),
            env={},
            home=tmp_path,
            prefix=(sys.executable, str(EXAMPLE)),
        )
        with stage.bridge() as bridge, example:
            bridge.wait_for_log("started")
            example.wait_until(lambda: len(example.output) >= 1, "the example")
            refused = stage.simulator.announce(SimulatedEvent(event_type="Reboot"))
            stage.line.wait_for_event(refused.event_id)
            event = stage.simulator.announce(SimulatedEvent(event_type="Freeze"))
            example.wait_until(lambda: len(example.output) >= 5, "five lines")
            lines = [line.text.decode().strip() for line in example.output]
        assert [event.event_id] == stage.effective()
    assert ["listening", f"{event.event_id} is approved for vm-0"] == lines[:2]
    expected = [
        f"{event.event_id} {state}  by example control plane"
        for state in ("accepted", "posted", "confirmed")
    ]
    assert expected == lines[2:]
    assert "d" not in json.loads(made.out)["keys"][0]
