"""`seb approve`: on the VM, and from a control plane over a real broker."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.fleet import ISSUER, CommandFleet
from support.process.bridge import PATIENCE, SEB, BridgeProcess, Ended, clean_environment, run_seb

from bridge.api import control
from bridge.approval import signing
from bridge.cli.approve_remote import verdict
from bridge.cli.remote_vm import Receipt
from bridge.simulator import faults
from bridge.simulator.simulator import Simulator


@pytest.fixture
def fleet(tmp_path: Path, imds_simulator: Simulator) -> Iterator[CommandFleet]:
    """A VM, a broker that lets everybody do everything, and a control plane."""
    with CommandFleet(tmp_path, imds_simulator) as made:
        yield made


@pytest.fixture
def bridge(fleet: CommandFleet) -> BridgeProcess:
    """The VM's bridge, running and connected."""
    return fleet.bridge()


def posts(fleet: CommandFleet) -> int:
    """How often Azure was told to start an event."""
    return len(fleet.imds.approvals)


def steps(said: Ended) -> list[list[str]]:
    """State and event of each step that was shown."""
    return [line.split()[:2] for line in said.out.splitlines()]


# On the VM.


def test_here(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """Every VM that is released is shown; reason and person stand in the log."""
    event_id = fleet.announce(bridge, event_type="Reboot", resources=("vm-0", "vm-1"))
    said = fleet.here(event_id.lower(), "--yes", "--reason", "window of tonight")
    assert said.code == 0, said.err
    assert steps(said) == [["posted", event_id], ["confirmed", event_id]]
    assert said.err.splitlines() == [
        f"Reboot {event_id}, at no given time",
        "An approval releases, now:",
        "  vm-0  (this VM)",
        "  vm-1",
    ]
    (approval,) = fleet.imds.approvals
    assert approval.started == (event_id,)
    line = bridge.wait_for_log("approval.accepted")
    assert line["why"] == "window of tonight"
    assert line["actor"].startswith("local:")


def test_here_as_json(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """One object, with a receipt's fields."""
    said = fleet.here(fleet.announce(bridge), "--yes", "--json", "--until", "posted")
    told = json.loads(said.out)
    assert (told["state"], told["reason"], told["resources"]) == ("posted", None, ["vm-0"])
    assert set(told) == {"jti", "evt", "state", "reason", "actor", "issuer", "resources"}


def test_here_an_event_that_nobody_knows(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """The answer is no, with the reason."""
    said = fleet.here("no-such-event", "--yes")
    assert (said.code, said.out) == (1, "")
    assert said.err == "seb: unknown_event: no such event is pending on this VM\n"


def test_here_an_event_that_has_started(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """There is nothing left to approve."""
    said = fleet.here(fleet.announce(bridge, status="Started"), "--yes")
    assert (said.code, said.err) == (1, "seb: already_started: the event is Started\n")
    assert posts(fleet) == 0


def test_here_azure_refuses(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """A request that will never be taken has failed."""
    event_id = fleet.announce(bridge)
    fleet.imds.fault(faults.Status(400), at="start")
    said = fleet.here(event_id, "--yes")
    assert (said.code, said.out.split()[:2]) == (1, ["failed:", "imds_refused"])


def test_here_azure_cannot_be_reached(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """It is accepted, and the bridge keeps trying: exit code 75."""
    event_id = fleet.announce(bridge)
    fleet.imds.fault(faults.Status(503), times=None, at="start")
    said = fleet.here(event_id, "--yes", "--wait", "0.5")
    assert (said.code, said.out.split()[0]) == (75, "accepted")
    assert "the bridge has accepted it, and keeps trying to reach Azure" in said.err


def test_here_until_azure_has_taken_it(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """Who does not want to wait for the start says so; who has waited in vain is told."""
    event_id = fleet.announce(bridge)
    said = fleet.here(event_id, "--yes", "--until", "posted")
    assert (said.code, steps(said)) == (0, [["posted", event_id]])
    fleet.imds.wait_for_gets(fleet.imds.gets + 1)
    late = fleet.here(fleet.announce(bridge), "--yes", "--wait", "0.1")
    assert late.code == 75
    assert "Azure has taken it, and the event has not started yet" in late.err


def test_here_an_event_that_is_not_what_was_shown(
    fleet: CommandFleet, bridge: BridgeProcess
) -> None:
    """Between the question and the answer it may change: then the answer was to another one."""
    request = {"ask": "approve", "event": fleet.announce(bridge), "user": "anna"}
    with pytest.raises(control.ControlError, match="event_changed"):
        control.ask(fleet.home / "state", {**request, "fingerprint": "sha256:of-before"})
    with pytest.raises(control.ControlError, match="why is a text of at most 512 characters"):
        control.ask(fleet.home / "state", {**request, "why": "x" * 513})
    assert posts(fleet) == 0


def test_here_without_a_bridge(fleet: CommandFleet) -> None:
    """Exit code 69, and which state directory was looked at."""
    said = fleet.here("E-1", "--yes")
    assert said.code == 69
    assert f"no bridge is running with the state directory {fleet.home / 'state'}" in said.err


def test_nobody_can_be_asked(fleet: CommandFleet) -> None:
    """Without a terminal there is no yes but --yes."""
    said = fleet.here("E-1")
    assert said.code == 2
    assert "standard input is not a terminal; confirm with --yes" in said.err


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo terminal")
@pytest.mark.parametrize(("word", "code", "count"), [(b"y\n", 0, 1), (b"n\n", 1, 0)])
def test_a_person_is_asked(
    fleet: CommandFleet, bridge: BridgeProcess, word: bytes, code: int, count: int
) -> None:
    """On a terminal, after everything was shown; no means that nothing is done."""
    import pty  # noqa: PLC0415  # not on Windows

    event_id = fleet.announce(bridge, resources=("vm-0", "vm-1"))
    terminal, end = pty.openpty()
    os.write(terminal, word)
    ended = subprocess.run(
        [*SEB, "approve", event_id],
        env=clean_environment(fleet.home, fleet.on_the_vm),
        cwd=fleet.home,
        stdin=end,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    os.close(end)
    os.close(terminal)
    assert (ended.returncode, posts(fleet)) == (code, count)
    shown = b"  vm-0  (this VM)\n  vm-1\nRelease 2 VMs, this VM among them? [y/N]: "
    assert shown in ended.stderr
    assert (b"seb: nothing is approved: the answer was no" in ended.stderr) == (count == 0)
    assert b"interrupted" not in ended.stderr


# From a control plane.


def test_afar(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """Shown, signed, sent, and every receipt told until Azure has taken it."""
    event_id = fleet.announce(bridge, event_type="Redeploy")
    said = fleet.afar(event_id.lower(), "--yes", "--reason", "drained")
    assert said.code == 0, said.err
    assert steps(said) == [[each, event_id] for each in ("accepted", "posted", "confirmed")]
    assert said.err.splitlines() == [
        f"Redeploy {event_id}, at no given time",
        "An approval releases, now:",
        "  vm-0  (the VM of --to)",
    ]
    assert [approval.started for approval in fleet.imds.approvals] == [(event_id,)]
    assert bridge.wait_for_log("approval.accepted")["why"] == "drained"


def test_afar_as_json(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """An object a line, the same jti in each."""
    said = fleet.afar(fleet.announce(bridge), "--yes", "--json", "--until", "posted")
    told = [json.loads(line) for line in said.out.splitlines()]
    assert [each["state"] for each in told] == ["accepted", "posted"]
    assert {each["issuer"] for each in told} == {ISSUER}
    assert len({each["jti"] for each in told}) == 1


def test_a_ping_proves_the_way(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """To the bridge and back, and nothing is approved."""
    said = fleet.afar("--ping")
    assert (said.code, said.out.split()[:2]) == (0, ["accepted", "ping"])
    assert posts(fleet) == 0


def test_the_bridge_stays_connected(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """The sender takes neither the bridge's client id nor its will."""
    assert fleet.afar("--ping").code == 0
    assert fleet.afar("--ping").code == 0
    assert bridge.logs("sink_down") == []


def test_afar_an_event_that_nobody_knows(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """Nothing is signed."""
    said = fleet.afar("no-such-event", "--yes")
    assert (said.code, said.out) == (1, "")
    assert "unknown_event: no such event is pending on VM" in said.err


def test_afar_an_event_that_has_started(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """Nothing is signed."""
    said = fleet.afar(fleet.announce(bridge, status="Started"), "--yes")
    assert (said.code, said.err) == (1, "seb: already_started: the event is Started\n")


def test_afar_azure_refuses(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """The last receipt says failed: exit code 1."""
    event_id = fleet.announce(bridge)
    fleet.imds.fault(faults.Status(400), at="start")
    said = fleet.afar(event_id, "--yes")
    assert said.code == 1
    assert said.out.splitlines()[-1].startswith("failed: imds_refused")


def test_a_key_of_another_issuer_is_not_permitted(
    fleet: CommandFleet, bridge: BridgeProcess
) -> None:
    """The bridge answers, for the signature is good; exit code 77."""
    other = fleet.home / "other.json"
    other.write_text(json.dumps({**signing.read_jwk(fleet.key), "iss": "https://other.example"}))
    said = fleet.afar("--ping", key=other)
    assert (said.code, said.out.split()[:2]) == (77, ["rejected:", "not_allowed"])


def test_a_key_that_is_not_trusted_gets_no_answer(
    fleet: CommandFleet, bridge: BridgeProcess
) -> None:
    """Exit code 75, and a hint at the trust file."""
    other = fleet.home / "other.json"
    signing.write_private(signing.generate(issuer=ISSUER, kid="k2", alg="ES256"), other)
    said = fleet.afar("--ping", "--wait", "0.5", key=other)
    assert said.code == 75
    assert "no reply within 0.5 s" in said.err
    assert "see that SEB_APPROVAL__TRUST has this one" in said.err
    assert bridge.wait_for_log("command_refused")["reason"] == "unknown_key"


def test_a_vm_that_does_not_listen(fleet: CommandFleet) -> None:
    """The broker knows that nobody does: exit code 75 at once."""
    bridge = fleet.bridge(SEB_SINK__MQTT__COMMANDS="false")
    said = fleet.afar(fleet.announce(bridge), "--yes")
    assert said.code == 75
    assert "no client is subscribed to the commands of this VM" in said.err


def test_a_vm_that_nobody_knows(fleet: CommandFleet) -> None:
    """Without a state there is nothing to approve."""
    said = fleet.afar("E-1", "--yes", "--wait", "0.5")
    assert said.code == 75
    assert f"the broker has no state of VM {fleet.vm_id}" in said.err


def test_a_broker_that_is_away(fleet: CommandFleet) -> None:
    """Exit code 69 with the address."""
    fleet.broker.stop()
    said = fleet.afar("--ping")
    assert said.code == 69
    assert f"mqtt: 127.0.0.1:{fleet.broker.port}: nothing listens there" in said.err


def test_a_wrong_password_is_not_shown(tmp_path: Path, imds_simulator: Simulator) -> None:
    """Exit code 69: the broker lets nobody in like that."""
    with CommandFleet(tmp_path, imds_simulator, users=True) as fleet:
        said = fleet.afar("--ping", SEB_SINK__MQTT__PASSWORD="wrong-word")
    assert said.code == 69
    assert "wrong-word" not in said.err


def test_a_sender_that_may_not_send(tmp_path: Path, imds_simulator: Simulator) -> None:
    """The broker's ACL decides who may: exit code 77, with the line that is missing."""
    acl = ["user bridge", "topic readwrite seb/#", "user control", "topic read seb/#"]
    with CommandFleet(tmp_path, imds_simulator, users=True, acl=acl) as fleet:
        fleet.bridge()
        said = fleet.afar("--ping")
    topic = f"seb/v1/default/vm/{fleet.vm_id}/command"
    assert said.code == 77
    assert f"add to its ACL: topic write {topic}" in said.err


def test_a_key_file_that_will_not_do(fleet: CommandFleet) -> None:
    """Exit code 78 before anything is sent; a trust file is no key."""
    for path in (fleet.trust, fleet.home / "nothing"):
        said = fleet.afar("--ping", key=path)
        assert said.code == 78
        assert str(path) in said.err


def test_which_sink_to_send_through(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """The only one that carries commands, or the one that is named."""
    second = {
        "SEB_SINK__OTHER__KIND": "mqtt",
        "SEB_SINK__OTHER__HOST": fleet.broker.host,
        "SEB_SINK__OTHER__PORT": str(fleet.broker.port),
    }
    either = fleet.afar("--ping", **second)
    assert (either.code, "choose one with --sink: " in either.err) == (78, True)
    assert fleet.afar("--ping", "--sink", "other", **second).code == 0
    none = fleet.afar("--ping", "--sink", "stdout", SEB_SINK__STDOUT__FORMAT="json")
    assert (none.code, "the sink stdout does not carry commands" in none.err) == (78, True)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--ping",),
        ("E-1", "--to", "vm", "--yes"),
        ("E-1", "--key", "k", "--yes"),
        ("E-1", "--ping", "--to", "vm", "--key", "k"),
        ("E-1", "--yes", "--reason", "two\nlines"),
        ("E-1", "--yes", "--wait", "0"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit code 2, before anything is read or sent."""
    assert run_seb("approve", *arguments, home=tmp_path).code == 2


@pytest.mark.parametrize(
    ("state", "reason", "is_ping", "code"),
    [
        ("accepted", None, False, None),
        ("accepted", None, True, 0),
        ("posted", None, False, None),
        ("confirmed", None, False, 0),
        ("failed", "imds_refused", False, 1),
        ("rejected", "event_changed", False, 1),
        ("rejected", "rate_limited", True, 1),
        ("rejected", "not_allowed", False, 77),
        ("rejected", "replayed", False, None),
        ("unheard of", None, False, 1),
    ],
)
def test_what_a_receipt_means(
    state: str, reason: str | None, is_ping: bool, code: int | None
) -> None:
    """Each state has its exit code, or none while more is to come."""
    receipt = Receipt(time="", data={"state": state, "reason": reason})
    assert verdict(receipt, is_ping=is_ping, until="confirmed") == code


def test_posted_is_enough_where_that_is_asked_for() -> None:
    """Azure has taken it: nothing more is waited for."""
    receipt = Receipt(time="", data={"state": "posted", "reason": None})
    assert verdict(receipt, is_ping=False, until="posted") == 0
