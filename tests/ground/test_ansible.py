"""deploy/ansible, played by Ansible itself on machines that systemd has booted: where the rollout
stops, and where it goes on. Each step builds on those before it, so they run in the order of the
file. `make dist` and `make deploy-tools` come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.ground import ansible
from support.ground.ansible import Ansible
from support.ground.doc_page import PageBlocks
from support.ground.nspawn import Machine, missing
from support.ground.packages import NAME, made
from support.sinks.far_ends import PASSWORD, FarEnds

PROGRAM = f"/usr/lib/{NAME}/bin/seb"
SETTINGS: dict[str, Any] = {
    "SITE": "weu-prod",
    "IMDS__URL": "http://127.0.0.1:8169",
    "SINK__MQTT__HOST": "broker.example",
    "SINK__MQTT__PORT": 8883,
    "SINK__MQTT__USERNAME": "vm",
    "SINK__OPS__KIND": "webhook",
    "SINK__OPS__URL": "https://ops.example/hooks/seb",
    "SINK__EVENTS__KIND": "webhook",
    "SINK__EVENTS__URL": "https://ops.example/events",
    "SINK__EVENTS__TYPES": ["seb.preparation.*"],
}
# A stand-in for a systemd without LoadCredential=: what asks for its version is told this.
OLD_SYSTEMD = """\
#!/bin/sh
case $1 in --version) echo 'systemd 245 (245.4-4ubuntu3.24)'; exit 0;; esac
exec /bin/systemctl "$@"
"""
# The metadata service is there as soon as the package has brought the program.
IMDS_COMES_LATER = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=1\n"
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def package() -> Path:
    """The package that `make dist` made."""
    return made(f"{NAME}_*_amd64.deb")


@pytest.fixture(scope="module")
def machines(package: Path) -> Iterator[dict[str, Machine]]:
    """A canary, a VM of the fleet, and a Debian 11 whose systemd is older still."""
    del package
    if why := missing() or ansible.missing():
        pytest.skip(why)
    with ExitStack() as stack:
        releases = {"canary": "bookworm", "old": "bullseye", "web": "bookworm"}
        found = {name: stack.enter_context(Machine(each)) for name, each in releases.items()}
        for machine in found.values():
            drop_in = machine.file("/etc/systemd/system/imds.service.d/later.conf")
            drop_in.parent.mkdir(parents=True)
            drop_in.write_text(IMDS_COMES_LATER)
            machine.run(f"ln -s /usr/lib/{NAME} /opt/seb")
            FarEnds(machine).make()
            machine.run("systemctl start receiver")
        systemctl = found["old"].file("/usr/local/sbin/systemctl")
        systemctl.write_text(OLD_SYSTEMD)
        systemctl.chmod(0o755)
        yield found


@pytest.fixture(scope="module")
def tool(machines: dict[str, Machine], tmp_path_factory: pytest.TempPathFactory) -> Ansible:
    """Ansible, which reaches these machines."""
    return Ansible(tmp_path_factory.mktemp("ansible"), machines)


def inventory(
    package: Path,
    settings: Mapping[str, Any] = SETTINGS,
    *,
    of_old: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """What a user writes: the canary in its group, the others in theirs.

    `of_old` are the variables of that VM alone.
    """
    common = {
        "seb_package_deb": str(package),
        "seb_settings": dict(settings),
        "seb_secrets": {"SINK__MQTT__PASSWORD": PASSWORD},
        "ansible_become_method": "ansible.builtin.su",
        "seb_ready_tries": 24,
        **more,
    }
    groups = {"seb_canary": {"hosts": {"canary": None}},
              "seb_web": {"hosts": {"old": of_old, "web": None}}}  # fmt: skip
    return {"seb": {"children": groups, "vars": common}}


def recap(said: str) -> dict[str, dict[str, int]]:
    """The counts that Ansible gives for each machine at its end."""
    lines = re.findall(r"^(\S+) +: (ok=.*)$", said, re.MULTILINE)
    return {
        name: {key: int(number) for key, number in re.findall(r"(\w+)=(\d+)", text)}
        for name, text in lines
    }


def has_the_package(machine: Machine) -> bool:
    """Whether the bridge is installed."""
    return machine.outcome(f"test -e {PROGRAM}").returncode == 0


def test_the_commands_are_those_of_the_page() -> None:
    """What the page has people type is played below, with another inventory."""
    page = PageBlocks("docs/rollout.md", by="tests/ground/test_ansible.py")
    folder, commands = page.take("Ansible"), page.take("Ansible")
    assert folder.splitlines() == ["cd deploy/ansible", "cp inventory.example.yml inventory.yml"]
    play = "ansible-playbook -i inventory.yml rollout.yml"
    assert commands.splitlines() == [f"{play} --check", play]
    assert page.left() == []


def test_a_dry_run_on_fresh_machines(
    tool: Ansible, machines: dict[str, Machine], package: Path
) -> None:
    """`--check` ends well, and changes nothing."""
    done = tool.play("rollout.yml", inventory(package), "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [has_the_package(each) for each in machines.values()] == [False, False, False]


def test_a_canary_that_cannot_be_reached_stops_it(
    tool: Ansible, machines: dict[str, Machine], package: Path
) -> None:
    """No other VM is touched, also if somebody has looked: at what, Ansible could not know."""
    asked = inventory(package)
    asked["seb"]["children"]["seb_canary"]["hosts"] = {"switched-off": None}
    done = tool.play("rollout.yml", asked, "-e", "seb_go_on=true")
    assert done.returncode != 0
    assert "could not be reached" in done.stdout
    assert [has_the_package(each) for each in machines.values()] == [False, False, False]


def test_a_misspelt_sink_stops_at_the_canary(
    tool: Ansible, machines: dict[str, Machine], package: Path
) -> None:
    """The play fails with the sink's name, although the bridge polls; no other VM is touched."""
    settings = {**SETTINGS, "SINK__MQTT__HOST": "brokr.example"}
    done = tool.play(
        "rollout.yml", inventory(package, settings, seb_ready_tries=8), "-e", "seb_go_on=true"
    )
    assert done.returncode != 0
    assert "brokr.example" in done.stdout
    assert machines["canary"].run("systemctl is-active seb").strip() == "active"
    assert not has_the_package(machines["web"])
    assert not has_the_package(machines["old"])


def test_without_a_terminal_it_ends_after_the_canary(
    tool: Ansible, machines: dict[str, Machine], package: Path
) -> None:
    """The canary works, and the rest waits for a person's word."""
    done = tool.play("rollout.yml", inventory(package))
    assert done.returncode != 0
    assert "ends after the canary" in done.stdout
    counts = recap(done.stdout)["canary"]
    assert (counts["failed"], counts["unreachable"]) == (0, 0), done.stdout
    assert not has_the_package(machines["web"])


def test_a_bad_setting_never_becomes_the_file(
    tool: Ansible, machines: dict[str, Machine], package: Path
) -> None:
    """It is refused with its name; the file and the running service stay as they are."""
    canary = machines["canary"]
    before = canary.file("/etc/seb/seb.env").read_text()
    pid = canary.run("systemctl show -p MainPID --value seb")
    done = tool.play("rollout.yml", inventory(package, {**SETTINGS, "POLL_INTERVAL": "often"}))
    assert done.returncode != 0
    assert "SEB_POLL_INTERVAL" in done.stdout
    assert canary.file("/etc/seb/seb.env").read_text() == before
    assert canary.run("systemctl show -p MainPID --value seb") == pid
    assert canary.outcome("ls /etc/seb/.seb.env*").returncode != 0


def test_a_bad_setting_of_one_vm_stops_the_fleet_there(
    tool: Ansible, machines: dict[str, Machine], package: Path
) -> None:
    """The VM in the middle is named with its setting, and starts nothing; the canary before it goes
    on, and the VM after it is not touched.
    """
    pid = machines["canary"].run("systemctl show -p MainPID --value seb")
    bad = {"seb_settings": {**SETTINGS, "POLL_INTERVAL": "often"}}
    done = tool.play("rollout.yml", inventory(package, of_old=bad), "-e", "seb_go_on=true")
    counts = recap(done.stdout)
    assert done.returncode != 0
    assert "SEB_POLL_INTERVAL" in done.stdout
    assert [counts[name]["failed"] for name in ("canary", "old")] == [0, 1], done.stdout
    assert "web" not in counts
    assert machines["canary"].run("systemctl show -p MainPID --value seb") == pid
    assert "often" not in machines["old"].run("cat /etc/seb/seb.env")
    assert machines["old"].run("systemctl is-active seb || :").strip() == "inactive"
    assert not has_the_package(machines["web"])


def test_a_person_types_yes(tool: Ansible, machines: dict[str, Machine], package: Path) -> None:
    """Then every VM works, also the one whose systemd hands over no secrets."""
    done = tool.play("rollout.yml", inventory(package), typed="yes\r")
    counts = recap(done.stdout)
    assert done.returncode == 0, done.stdout
    assert {name: each["failed"] for name, each in counts.items()} == {
        "localhost": 0, "canary": 0, "web": 0, "old": 0,
    }  # fmt: skip
    assert counts["canary"]["changed"] == 0, done.stdout
    for machine in machines.values():
        assert FarEnds(machine).received()
        machine.run("seb status")
    old = machines["old"]
    secret = "/etc/seb/credentials/SEB_SINK__MQTT__PASSWORD"
    assert old.run(f"stat -c '%a %U %G' {secret}").strip() == "640 root seb"
    assert machines["web"].run(f"stat -c '%a %U %G' {secret}").strip() == "600 root root"


def test_further_variables(tool: Ansible, machines: dict[str, Machine], package: Path) -> None:
    """HTTPS_PROXY and its like reach the service."""
    asked = inventory(package, seb_environment={"NO_PROXY": ".example", "AZURE_CLIENT_ID": "1234"})
    done = tool.play("rollout.yml", asked, "-e", "seb_go_on=true", "--limit", "canary")
    assert done.returncode == 0, done.stdout
    pid = machines["canary"].run("systemctl show -p MainPID --value seb").strip()
    environment = machines["canary"].run(f"tr '\\0' '\\n' < /proc/{pid}/environ").splitlines()
    assert {"NO_PROXY=.example", "AZURE_CLIENT_ID=1234"} <= set(environment)


def test_removal(tool: Ansible, machines: dict[str, Machine], package: Path) -> None:
    """`uninstall.yml` with seb_purge takes the package, its settings, its state and its account."""
    done = tool.play("uninstall.yml", inventory(package), "-e", "seb_purge=true")
    assert done.returncode == 0, done.stdout
    for machine in machines.values():
        assert not has_the_package(machine)
        assert machine.outcome("test -e /etc/seb").returncode == 1
        assert machine.outcome("ls /var/cache/scheduled-events*").returncode != 0
