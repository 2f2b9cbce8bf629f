"""`seb approve`: on the VM, and from a control plane over a real broker."""

import getpass
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands.command_fleet import ISSUER, CommandFleet
from support.documents.documents import entry
from support.mqtt.commands import send
from support.patience import PATIENCE
from support.process.bridge import SEB, BridgeProcess, EndedCommand, clean_environment
from support.process.seb_here import Here

from bridge.api import control
from bridge.cli.approve_remote import verdict
from bridge.cli.key_files import read_jwk, write_private
from bridge.imds.document import parse_event
from bridge.simulator import faults
from bridge.simulator.simulator import Simulator
from wire import keys
from wire.event import fingerprint


@pytest.fixture
def alone(tmp_path: Path, imds_simulator: Simulator, here: Here) -> Iterator[CommandFleet]:
    """A VM without a bridge yet, a broker without access rules, and a control plane."""
    with CommandFleet(tmp_path, imds_simulator) as made:
        made.run = here
        yield made


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[CommandFleet, BridgeProcess]]:
    """The same with the VM's bridge, running and connected."""
    with Simulator() as imds, CommandFleet(tmp_path_factory.mktemp("fleet"), imds) as made:
        yield made, made.running()


@pytest.fixture
def fleet(running: tuple[CommandFleet, BridgeProcess], here: Here) -> CommandFleet:
    """A running VM for all tests that change nothing but an event or two."""
    running[0].run = here
    return running[0]


@pytest.fixture
def bridge(running: tuple[CommandFleet, BridgeProcess]) -> BridgeProcess:
    """Return the fleet's bridge."""
    return running[1]


def posts(fleet: CommandFleet, event_id: str) -> int:
    """Return how many POSTs for an event IMDS got."""
    return sum(event_id in each.started for each in fleet.imds.approvals)


def wait_for_line(bridge: BridgeProcess, action: str, **said: str) -> None:
    """Wait for a line of the log with this text."""
    bridge.wait_until(
        lambda: any(said.items() <= line.items() for line in bridge.logs(action)), f"{said}"
    )


def steps(said: EndedCommand) -> list[list[str]]:
    """Return state and event of each step that was shown."""
    return [line.split()[:2] for line in said.out.splitlines()]


# On the VM.


def test_here(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """The command shows every VM that is released; reason and person are in the log."""
    event_id = fleet.news(bridge, event_type="Reboot", resources=("vm-0", "vm-1"))
    result = fleet.here(event_id.lower(), "--yes", "--reason", "window of tonight")
    assert result.code == 0, result.err
    assert steps(result) == [["posted", event_id], ["confirmed", event_id]]
    assert all(line.endswith("  because: window of tonight") for line in result.out.splitlines())
    assert result.err.splitlines() == [
        f"Reboot {event_id}, at no given time",
        "An approval releases, now:",
        "  vm-0  (this VM)",
        "  vm-1",
    ]
    assert posts(fleet, event_id) == 1
    user = os.environ.get("SUDO_USER") or getpass.getuser()
    wait_for_line(bridge, "approval.accepted", why="window of tonight", actor=f"local:{user}")


def test_here_as_json(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """With --json the result is one object with a receipt's fields."""
    arguments = ("--yes", "--json", "--until", "posted", "--reason", "CHG1")
    receipt = json.loads(fleet.here(fleet.news(bridge), *arguments).out)
    assert (receipt["state"], receipt["reason"], receipt["resources"]) == ("posted", None, ["vm-0"])
    assert receipt["rsn"] == "CHG1"
    assert set(receipt) == {"jti", "evt", "state", "reason", "actor", "issuer", "resources", "rsn"}


def test_here_it_is_refused(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """The refusal has its reason: the event is unknown, has started, or Azure refuses it."""
    result = fleet.here("no-such-event", "--yes")
    assert (result.code, result.out) == (1, "")
    assert result.err == "seb: unknown_event: no such event is pending on this VM\n"
    event_id = fleet.news(bridge, status="Started")
    result = fleet.here(event_id, "--yes")
    assert (result.code, result.err) == (1, "seb: already_started: the event is Started\n")
    assert posts(fleet, event_id) == 0
    event_id = fleet.news(bridge)
    fleet.imds.fault(faults.StatusFault(400), at="start")
    result = fleet.here(event_id, "--yes")
    assert (result.code, result.out.split()[:2]) == (1, ["failed:", "imds_refused"])


def test_here_azure_cannot_be_reached(alone: CommandFleet) -> None:
    """If IMDS does not answer, the approval is accepted and retried; exit code 75."""
    event_id = alone.news(alone.running())
    alone.imds.fault(faults.StatusFault(503), times=None, at="start")
    result = alone.here(event_id, "--yes", "--wait", "0.5")
    assert (result.code, result.out.split()[0]) == (75, "accepted")
    assert "the bridge has accepted it, and keeps trying to reach Azure" in result.err


def test_here_until_azure_has_taken_it(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """With `--until posted` the command ends once IMDS has accepted the request; if `--wait` is
    over before the start, it ends with 75.
    """
    event_id = fleet.news(bridge)
    result = fleet.here(event_id, "--yes", "--until", "posted")
    assert (result.code, steps(result)) == (0, [["posted", event_id]])
    fleet.imds.wait_for_gets(fleet.imds.gets + 1)
    late = fleet.here(fleet.news(bridge), "--yes", "--wait", "0.1")
    assert late.code == 75
    assert "Azure has taken it, and the event has not started yet" in late.err


def test_here_an_event_that_is_not_what_was_shown(
    fleet: CommandFleet, bridge: BridgeProcess
) -> None:
    """An event that changes between the question and the answer is not approved."""
    event_id = fleet.news(bridge)
    request = {"ask": "approve", "event": event_id, "user": "anna"}
    with pytest.raises(control.ControlError, match="event_changed"):
        control.send(fleet.home / "state", {**request, "fingerprint": "sha256:of-before"})
    with pytest.raises(control.ControlError, match="why is a text of at most 512 characters"):
        control.send(fleet.home / "state", {**request, "why": "x" * 513})
    for why in ("", "a\nb", "\x1b[2J"):
        with pytest.raises(control.ControlError, match="why is one line of printable characters"):
            control.send(fleet.home / "state", {**request, "why": why})
    assert posts(fleet, event_id) == 0


def test_here_without_a_bridge(alone: CommandFleet) -> None:
    """Without a bridge the exit code is 69, and the message names the state directory."""
    result = alone.here("E-1", "--yes")
    assert result.code == 69
    assert f"no bridge is running with the state directory {alone.home / 'state'}" in result.err


def test_without_a_terminal_yes_is_needed(alone: CommandFleet) -> None:
    """Without a terminal the command needs --yes."""
    result = alone.here("E-1")
    assert result.code == 2
    assert "standard input is not a terminal; confirm with --yes" in result.err


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo terminal")
@pytest.mark.parametrize(("word", "code", "count"), [(b"y\n", 0, 1), (b"n\n", 1, 0)])
def test_a_person_is_asked(
    fleet: CommandFleet, bridge: BridgeProcess, word: bytes, code: int, count: int
) -> None:
    """On a terminal everything is shown before the question; after a no, nothing is done."""
    import pty  # noqa: PLC0415  # not on Windows

    event_id = fleet.news(bridge, resources=("vm-0", "vm-1"))
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
    assert (ended.returncode, posts(fleet, event_id)) == (code, count)
    shown = b"  vm-0  (this VM)\n  vm-1\nRelease 2 VMs, this VM among them? [y/N]: "
    assert shown in ended.stderr
    assert (b"seb: nothing is approved: the answer was no" in ended.stderr) == (count == 0)
    assert b"interrupted" not in ended.stderr


# From a control plane.


def test_from_a_control_plane(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """The command shows the event, signs and sends the command, and prints every receipt until IMDS
    has accepted the request.
    """
    event_id = fleet.news(bridge, event_type="Redeploy")
    result = fleet.afar(event_id.lower(), "--yes", "--reason", "drained")
    assert result.code == 0, result.err
    assert all(line.endswith("  because: drained") for line in result.out.splitlines())
    assert steps(result) == [[each, event_id] for each in ("accepted", "posted", "confirmed")]
    assert result.err.splitlines() == [
        f"Redeploy {event_id}, at no given time",
        "An approval releases, now:",
        "  vm-0  (the VM of --to)",
    ]
    assert posts(fleet, event_id) == 1
    wait_for_line(bridge, "approval.accepted", why="drained")


def test_from_a_control_plane_as_json(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """With --json each receipt is an object on a line, with the same jti."""
    result = fleet.afar(fleet.news(bridge), "--yes", "--json", "--until", "posted")
    receipts = [json.loads(line) for line in result.out.splitlines()]
    assert [each["state"] for each in receipts] == ["accepted", "posted"]
    assert {each["issuer"] for each in receipts} == {ISSUER}
    assert len({each["jti"] for each in receipts}) == 1


def test_a_ping_proves_the_way(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """A ping reaches the bridge and its receipt comes back; nothing is approved."""
    before = len(fleet.imds.approvals)
    result = fleet.afar("--ping")
    assert (result.code, result.out.split()[:2]) == (0, ["accepted", "ping"])
    assert len(fleet.imds.approvals) == before
    # The sender takes neither the bridge's client id nor its will.
    assert bridge.logs("sink_down") == []


def test_from_a_control_plane_an_unknown_event(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """For an event that the VM does not publish, nothing is signed."""
    result = fleet.afar("no-such-event", "--yes")
    assert (result.code, result.out) == (1, "")
    assert "unknown_event: no such event is pending on VM" in result.err


def test_a_key_of_another_issuer_is_not_permitted(
    fleet: CommandFleet, bridge: BridgeProcess
) -> None:
    """A valid signature with another issuer's key is rejected by the bridge; exit code 77."""
    other = fleet.home / "other.json"
    other.write_text(json.dumps({**read_jwk(fleet.key), "iss": "https://other.example"}))
    result = fleet.afar("--ping", key=other)
    assert (result.code, result.out.split()[:2]) == (77, ["rejected:", "not_allowed"])


def test_a_key_that_is_not_trusted_gets_no_answer(
    fleet: CommandFleet, bridge: BridgeProcess
) -> None:
    """With an unknown key there is no receipt: exit code 75, and a hint at the trust file."""
    other = fleet.home / "untrusted.json"
    write_private(keys.generate(issuer=ISSUER, kid="k2", alg="ES256"), other)
    result = fleet.afar("--ping", "--wait", "0.5", key=other)
    assert result.code == 75
    assert "no reply within 0.5 s" in result.err
    assert "see that SEB_APPROVAL__TRUST has this one" in result.err
    wait_for_line(bridge, "command_refused", reason="unknown_key")


def test_a_vm_that_does_not_listen(alone: CommandFleet) -> None:
    """If no bridge has subscribed to the command topic, the exit code is 75 at once."""
    bridge = alone.running(SEB_SINK__MQTT__COMMANDS="false")
    result = alone.afar(alone.news(bridge), "--yes")
    assert result.code == 75
    assert "no client is subscribed to the commands of this VM" in result.err


def test_a_vm_without_a_state(alone: CommandFleet) -> None:
    """A VM without a retained state cannot be asked to approve an event."""
    result = alone.afar("E-1", "--yes", "--wait", "0.5")
    assert result.code == 75
    assert f"the broker has no state of VM {alone.vm_id}" in result.err


@pytest.mark.parametrize(
    "lie",
    [{"eventType": "Terminate"}, {"resources": ["vm-0", "db"]}, {"resources": [1, "vm-0"]}, {}],
)
def test_an_event_under_anothers_fingerprint(alone: CommandFleet, lie: dict[str, Any]) -> None:
    """The command signs nothing for an event whose fingerprint does not fit what the broker
    shows.
    """
    real = parse_event(entry("E-1", resources=["vm-0"])).to_wire()
    shown = {**real, **lie, "fingerprint": fingerprint(real)}
    if not lie:
        del shown["durationInSeconds"]  # as version 0.1.0 did
    topic = f"seb/v1/default/vm/{alone.vm_id}/state"
    send(alone.broker, topic, json.dumps({"events": [shown]}).encode(), retain=True)
    result = alone.afar("E-1", "--yes")
    assert (result.code, result.out) == (1, "")
    assert "does not match its fingerprint" in result.err


def test_a_broker_that_is_away(alone: CommandFleet) -> None:
    """If the broker does not answer, the exit code is 69, with its address."""
    alone.broker.stop()
    result = alone.afar("--ping")
    assert result.code == 69
    assert f"mqtt: 127.0.0.1:{alone.broker.port}: connection refused" in result.err


def test_a_wrong_password_is_not_shown(
    tmp_path: Path, imds_simulator: Simulator, here: Here
) -> None:
    """Exit code 69 if the broker refuses the password, and the output does not contain it."""
    with CommandFleet(tmp_path, imds_simulator, acl=["topic readwrite #"]) as fleet:
        fleet.run = here
        result = fleet.afar("--ping", SEB_SINK__MQTT__PASSWORD="wrong-word")
    assert result.code == 69
    assert "wrong-word" not in result.err


def test_a_sender_that_may_not_send(tmp_path: Path, imds_simulator: Simulator, here: Here) -> None:
    """If the broker's ACL forbids to send commands, the exit code is 77, with the missing line."""
    vm = f"user {imds_simulator.vm.vm_id}"
    acl = [vm, "topic readwrite seb/#", "user control", "topic read seb/#"]
    with CommandFleet(tmp_path, imds_simulator, acl=acl) as fleet:
        fleet.run = here
        fleet.running()
        result = fleet.afar("--ping")
    topic = f"seb/v1/default/vm/{fleet.vm_id}/command"
    assert result.code == 77
    assert f"add to its ACL: topic write {topic}" in result.err


def test_a_key_file_that_cannot_sign(alone: CommandFleet) -> None:
    """With a file that has no private key, such as a trust file, the exit code is 78 before
    anything is sent.
    """
    for path in (alone.trust, alone.home / "nothing"):
        result = alone.afar("--ping", key=path)
        assert result.code == 78
        assert str(path) in result.err


def test_which_sink_to_send_through(fleet: CommandFleet, bridge: BridgeProcess) -> None:
    """The command is sent through the only sink that carries commands, or through the one that is
    named.
    """
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
        ("E-1", "--yes", "--wait", "nan"),
    ],
)
def test_options_that_do_not_go_together(here: Here, arguments: tuple[str, ...]) -> None:
    """Contradictory options end with exit code 2 before anything is read or sent."""
    assert here("approve", *arguments).code == 2


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
    """Each state of a receipt has its exit code, or none while more receipts follow."""
    receipt = {"state": state, "reason": reason}
    assert verdict(receipt, is_ping=is_ping, until="confirmed") == code
    assert state != "posted" or verdict(receipt, is_ping=False, until="posted") == 0
