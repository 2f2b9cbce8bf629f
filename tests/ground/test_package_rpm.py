"""The .rpm, installed by rpm on a machine that systemd has booted, from installation to removal.

The machine is a Debian: it has rpm, but not the packages that the .rpm depends on by name, so rpm
is told not to look for them. Each step builds on those before it. `make dist` comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.eventually import eventually
from support.ground.nspawn import Machine, missing
from support.ground.packages import NAME, NEWER, made, newer_rpm
from support.sinks.far_ends import IMDS, FarEnds

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine without the bridge, and with the .rpm in /var/tmp."""
    package = made(f"{NAME}-*.x86_64.rpm")
    if why := missing():
        pytest.skip(why)
    with Machine() as up:
        if up.outcome("command -v rpm").returncode:
            pytest.skip("the machine has no rpm")
        up.file("/var/tmp/seb.rpm").write_bytes(package.read_bytes())
        yield up


def state(machine: Machine) -> str:
    """Whether the service runs."""
    return machine.run("systemctl show -p ActiveState --value seb").strip()


def test_installation_starts_nothing(machine: Machine) -> None:
    """Account, command, settings and service are there; nothing is enabled or started."""
    machine.run("rpm -i --nodeps /var/tmp/seb.rpm && getent passwd seb && seb version")
    assert machine.run("systemctl is-enabled seb || :").strip() == "disabled"
    assert state(machine) == "inactive"
    assert machine.run("stat -c '%a %U' /etc/seb/seb.env /etc/seb/credentials").splitlines() == [
        "600 root",
        "700 root",
    ]
    assert machine.run(f"rpm -V --nodeps {NAME}").strip() == ""


def test_it_works(machine: Machine) -> None:
    """With its settings, enabled and started, records arrive."""
    machine.run(f"ln -s /usr/lib/{NAME} /opt/seb")  # where the stand-ins look for seb simulate
    far = FarEnds(machine)
    far.make()
    machine.run("systemctl start receiver")
    with machine.file("/etc/seb/seb.env").open("a") as settings:
        settings.write(
            f"SEB_SINK__OPS__KIND=webhook\nSEB_SINK__OPS__URL=https://ops.example/seb\n{IMDS}"
        )
    machine.run("seb check && systemctl enable -q --now seb")
    eventually(lambda: len(far.received()) >= 3, what="three records", timeout=120)


def test_an_upgrade_restarts_it(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer version runs, enabled as before, with the owner's settings."""
    before = machine.run("systemctl show -p MainPID --value seb")
    machine.file("/var/tmp/newer.rpm").write_bytes(newer_rpm(tmp_path, monkeypatch).read_bytes())
    machine.run("rpm -U --nodeps /var/tmp/newer.rpm")
    assert machine.run(f"rpm -q --qf '%{{VERSION}}' {NAME}") == NEWER
    assert state(machine) == "active"
    assert machine.run("systemctl show -p MainPID --value seb") != before
    assert machine.run("systemctl is-enabled seb").strip() == "enabled"
    assert "ops.example" in machine.file("/etc/seb/seb.env").read_text()


def test_back_to_the_older_version(machine: Machine) -> None:
    """A downgrade is an upgrade the other way round: it runs, with the same store."""
    machine.run("rpm -U --oldpackage --nodeps /var/tmp/seb.rpm")
    assert state(machine) == "active"
    assert machine.run(f"rpm -q --qf '%{{VERSION}}' {NAME}") != NEWER


def test_removal_leaves_settings_and_state(machine: Machine) -> None:
    """The service is stopped; changed settings stay as .rpmsave, the store stays."""
    machine.run(f"rm /opt/seb; systemctl stop imds; rpm -e {NAME}")
    assert machine.outcome("test -e /usr/bin/seb").returncode == 1
    assert machine.run("systemctl show -p LoadState --value seb").strip() == "not-found"
    machine.run(f"test -e /etc/seb/seb.env.rpmsave && test -e /var/lib/{NAME}/seb.db")
