"""docs/linux.md, steps 1 to 6 and 8, on a machine that systemd has booted."""

from __future__ import annotations

import re

import pytest
from support.eventually import eventually
from support.ground.doc_page import PageBlocks
from support.ground.nspawn import Machine
from support.ground.service import restarted, show, wait_for
from support.sinks.far_ends import IMDS, PASSWORD, FarEnds

LINUX = "docs/linux.md"
STATE = "/var/lib/private/scheduled-events-bridge"
SECRET = "/etc/seb/credentials/SEB_SINK__MQTT__PASSWORD"
pytestmark = pytest.mark.timeout(600)


def test_install(machine: Machine, page: PageBlocks) -> None:
    """Step 1 installs it beside other versions."""
    output = machine.run(page.take("1. Install"), network=True, timeout=500)
    assert output.splitlines()[-1] == "0.2.0"


def test_settings_and_secrets(machine: Machine, page: PageBlocks, far: FarEnds) -> None:
    """Steps 2 and 3: settings and secrets are files that only root can read."""
    far.make()
    machine.type_into_editor(page.take("2. Settings"), page.file("/etc/seb/seb.env") + IMDS)
    machine.type_into_editor(page.take("3. Secrets"), PASSWORD)
    output = machine.run(f"stat -c '%a %U %n' /etc/seb/seb.env {SECRET}")
    assert output.splitlines() == ["600 root /etc/seb/seb.env", f"600 root {SECRET}"]


def test_check(machine: Machine, page: PageBlocks) -> None:
    """Step 4 finds what is missing (no receiver yet: 69), and passes once it is there."""
    script = page.take("4. Check")
    first = machine.outcome(script)
    assert (first.returncode, "FAIL" in first.stdout) == (69, True), first
    machine.run("systemctl start receiver")
    assert "FAIL" not in machine.run(script)
    machine.run("systemctl stop receiver")


def test_service(machine: Machine, page: PageBlocks) -> None:
    """Step 5 starts the service, with its secrets, from drop-ins, without a terminal."""
    machine.run(page.take("5. The service"))
    machine.run(page.take("5. The service"))
    wait_for(machine, "ActiveState", "active")
    status = lambda: machine.outcome("/opt/seb/bin/seb status")  # noqa: E731
    eventually(lambda: "mqtt  ok" in status().stdout, what="mqtt")
    assert status().returncode == 1, "the webhook has no receiver now"
    assert machine.run("systemctl is-enabled seb").strip() == "enabled"


def test_exposure(machine: Machine) -> None:
    """Systemd's own score for the running service is the page's, 1.2."""
    output = machine.run("systemd-analyze security --no-pager seb | tail -1")
    assert re.search(r": 1\.2 ", output), output


def test_state_is_private(machine: Machine) -> None:
    """Every file of the running service is its account's only."""
    output = machine.run(f"find {STATE} -printf '%m %P\\n'")
    assert [line for line in output.splitlines() if line.split()[0][-2:] != "00"] == []


def test_look(machine: Machine, page: PageBlocks) -> None:
    """Every command of step 6 answers."""
    # A person types the commands one by one: `seb status` ends with 1 while a sink fails.
    output = machine.run(f"set +e\n{page.take('6. Look at it')}")
    assert all(
        word in output for word in ("Active: active", "mqtt  ok", '"action"', "ok    settings")
    )


def test_what_the_last_check_said(machine: Machine) -> None:
    """The command for the last start's check prints one start, after several."""
    machine.run("systemctl restart seb; systemctl restart seb")
    wait_for(machine, "ActiveState", "active")
    script = next(b.text for b in PageBlocks(LINUX).all("6. Look at it") if "INVOCATION" in b.text)
    output = machine.run(script[script.index("# What the check said") :])
    assert len(re.findall(r"(?m)^ok +settings", output)) == 1, output


def test_kill(machine: Machine) -> None:
    """After kill -9 it runs again."""
    pid = show(machine, "MainPID")
    machine.run(f"kill -9 {pid}")
    restarted(machine, pid)


def test_watchdog(machine: Machine) -> None:
    """A process that hangs is restarted by the watchdog."""
    pid = show(machine, "MainPID")
    machine.run(f"kill -STOP {pid}")
    restarted(machine, pid)


def test_wrong_setting(machine: Machine) -> None:
    """A wrong setting ends it with 78, and it is not tried again until somebody starts it."""
    machine.run("echo SEB_POLL_INTERVAL=often >> /etc/seb/seb.env; systemctl restart seb || :")
    wait_for(machine, "ActiveState", "failed")
    assert show(machine, "ExecMainStatus") == "78"
    machine.run("sleep 8")  # longer than RestartSec=
    assert show(machine, "ActiveState") == "failed"
    machine.run("sed -i '$d' /etc/seb/seb.env; systemctl start seb")
    wait_for(machine, "ActiveState", "active")


def test_stop(machine: Machine) -> None:
    """A stop is clean: exit code 0, within ten seconds, though a sink is away."""
    machine.run("timeout 10 systemctl stop seb")
    output = machine.run("systemctl show -p Result,ExecMainStatus seb").split()
    assert sorted(output) == ["ExecMainStatus=0", "Result=success"]
    machine.run("systemctl start seb")


def test_reboot(machine: Machine, far: FarEnds) -> None:
    """What could not be delivered before a reboot arrives after it, in order and once."""
    output = machine.run("/opt/seb/bin/seb outbox list --json")
    assert far.received() == []
    assert '"ops"' in output
    machine.run("systemctl enable -q receiver")
    machine.reboot()
    eventually(lambda: len(far.received()) >= 3, what="the backlog", timeout=120)
    came = far.received()
    sequences = [int(record["sequence"]) for record in came]
    assert sequences == sorted(set(sequences))
    assert came[0]["type"] == "seb.event.scheduled.v1"


def test_upgrade_and_back(machine: Machine, page: PageBlocks) -> None:
    """Step 8 changes to another version, and back, with the same records."""
    bump = "sed -i 's/0[.]2[.]0/0.3.0/' bridge/version.py"
    install = PageBlocks(LINUX).take("1. Install").replace("0.2.0", "0.3.0")
    machine.run(bump)
    machine.run(install, network=True, timeout=500)
    streams_of = "[.. | objects | .stream? // empty] | unique | .[]"
    stream = f"/opt/seb/bin/seb events --json | jq -r '{streams_of}'"
    streams = {machine.run(stream)}
    for step, version in ((1, "0.3.0"), (2, "0.2.0")):
        machine.run(page.take("8. Upgrade, and back"))
        wait_for(machine, "ActiveState", "active")
        output = machine.run("/opt/seb/bin/seb version")
        assert (step, output.strip()) == (step, version)
        streams.add(machine.run(stream))
    assert len(streams) == 1
