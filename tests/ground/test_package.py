"""The .deb on a machine that systemd has booted, from its installation to its purge.

Each step builds on those before it, so they run in the order of the file. `make dist` comes first.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.eventually import eventually
from support.ground.doc_page import PageBlocks
from support.ground.nspawn import HOME, Machine, missing
from support.ground.packages import CONSOLE, NAME, left_behind, made, newer_deb
from support.sinks.far_ends import IMDS, FarEnds

STORE = f"/var/lib/{NAME}/seb.db"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def package() -> Path:
    """The package that `make dist` made."""
    return made(f"{NAME}_*_amd64.deb")


@pytest.fixture(scope="module")
def machine(package: Path) -> Iterator[Machine]:
    """A machine without the bridge, and with the package in /var/tmp."""
    del package
    if why := missing():
        pytest.skip(why)
    with Machine() as made:
        yield made


@pytest.fixture(scope="module")
def far(machine: Machine) -> FarEnds:
    """A metadata service and a receiver of webhooks in the machine."""
    return FarEnds(machine)


def property_of(machine: Machine, name: str) -> str:
    """A property of the service."""
    return machine.run(f"systemctl show -p {name} --value seb").strip()


def sequences(far: FarEnds) -> list[int]:
    """The numbers of the records that the receiver has got, each once, without heartbeats."""
    plain = (each for each in far.received() if each["type"] != "seb.bridge.heartbeat.v1")
    return sorted({int(each["sequence"]) for each in plain})


def test_installation_starts_nothing(machine: Machine, package: Path) -> None:
    """The package comes with account and service, which is neither enabled nor started."""
    machine.file("/var/tmp/seb.deb").write_bytes(package.read_bytes())
    machine.run("dpkg -i /var/tmp/seb.deb && getent passwd seb && seb version")
    assert machine.run("systemctl is-enabled seb || :").strip() == "disabled"
    assert property_of(machine, "ActiveState") == "inactive"
    assert machine.run("stat -c '%a %U' /etc/seb/seb.env").strip() == "600 root"


def test_check_is_about_the_service(machine: Machine, far: FarEnds) -> None:
    """With two lines in seb.env, `seb check` as root finds nothing wrong."""
    machine.run(f"ln -s /usr/lib/{NAME} /opt/seb")  # where the stand-ins look for seb simulate
    far.make()
    machine.run("systemctl start receiver")
    with machine.file("/etc/seb/seb.env").open("a") as settings:
        settings.write(
            f"SEB_SINK__OPS__KIND=webhook\nSEB_SINK__OPS__URL=https://ops.example/seb\n{IMDS}"
        )
    output = machine.run("seb check")
    words = [line.split()[0] for line in output.splitlines() if not line.startswith(" ")]
    assert set(words) <= {"ok", "warn"}, output
    assert "sink ops" in output
    assert "use sudo" in machine.run("sudo -u nobody seb version 2>&1")


def test_records_arrive(machine: Machine, far: FarEnds) -> None:
    """Enabled and started, it delivers records to the sink, as the package's own account."""
    machine.run("systemctl enable -q --now seb")
    eventually(lambda: len(sequences(far)) >= 3, what="three records", timeout=120)
    pid = property_of(machine, "MainPID")
    assert machine.run(f"stat -c %U /proc/{pid}").strip() == "seb"
    machine.run("seb status")


def test_an_upgrade_with_a_backlog(machine: Machine, far: FarEnds, tmp_path: Path) -> None:
    """What was not delivered when the new version came is delivered after it, without a gap."""
    machine.run("systemctl stop receiver")
    before = sequences(far)[-1]
    eventually(
        lambda: machine.run("seb outbox list --json | grep -c ops || :").strip() != "0",
        what="a backlog",
        timeout=120,
    )
    newer_deb(machine.file("/var/tmp/seb.deb"), machine.file("/var/tmp/newer.deb"), tmp_path)
    pid = property_of(machine, "MainPID")
    machine.run("echo '# mine' >> /etc/seb/seb.env; dpkg -i /var/tmp/newer.deb")
    assert property_of(machine, "ActiveState") == "active"
    assert property_of(machine, "MainPID") != pid
    assert "# mine" in machine.file("/etc/seb/seb.env").read_text()
    machine.run("systemctl start receiver")
    eventually(lambda: sequences(far)[-1] > before + 5, what="the backlog", timeout=180)
    every = {int(each["sequence"]) for each in far.received()}
    beats = {number for number in range(1, max(every)) if number not in every}
    assert len(beats) <= 3, beats  # heartbeats that a newer one replaced


def test_an_upgrade_to_what_does_not_start(machine: Machine) -> None:
    """The package is installed all the same, and says that the service did not start again."""
    machine.run("cp /etc/seb/seb.env /var/tmp/good.env")
    machine.run("echo SEB_POLL_INTERVAL=often >> /etc/seb/seb.env")
    done = machine.outcome("dpkg -i /var/tmp/newer.deb")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seb.service did not start again" in done.stderr
    assert machine.run(f"dpkg-query -f '${{Status}}' -W {NAME}") == "install ok installed"
    eventually(
        lambda: property_of(machine, "ExecMainStatus") == "78", what="exit code 78", timeout=60
    )
    machine.run("cp /var/tmp/good.env /etc/seb/seb.env; systemctl restart seb")


def test_a_newer_store_is_refused(machine: Machine) -> None:
    """A program that is older than its store ends with 78, says so, and changes nothing."""
    machine.run(f"""
        systemctl stop seb
        python3 -c "import sqlite3; sqlite3.connect('{STORE}').execute('PRAGMA user_version=999')"
        systemctl start seb || :
    """)
    eventually(
        lambda: property_of(machine, "ExecMainStatus") == "78", what="exit code 78", timeout=60
    )
    assert "999" in machine.run("journalctl -u seb -o cat --no-pager | tail -20")
    assert machine.outcome("seb check --offline").returncode == 78


def test_removal_leaves_settings_and_state(machine: Machine) -> None:
    """Removal stops the service and takes the program; what is the owner's stays."""
    machine.run(f"rm /opt/seb; systemctl stop imds; dpkg -r {NAME}")
    assert machine.outcome("test -e /usr/bin/seb").returncode == 1
    states = [property_of(machine, name) for name in ("LoadState", "ActiveState")]
    assert states == ["not-found", "inactive"]
    machine.run(f"test -e {STORE} && test -e /etc/seb/seb.env")


def test_one_vm_as_the_page_has_it(machine: Machine, far: FarEnds) -> None:
    """Its four commands, on a machine from which everything was removed; then a file is replaced as
    the page on rotation has it.
    """
    machine.run(f"dpkg -P {NAME}; ln -sfn /usr/lib/{NAME} /opt/seb")
    machine.run(f"cp /var/tmp/seb.deb {HOME}/scheduled-events-bridge_0.2.0-1_amd64.deb")
    page = PageBlocks("docs/rollout.md", by="tests/ground/test_package.py")
    script = page.take("One VM").replace("apt-get install", "apt-get install -y -q")
    install, check = script.split("sudo seb check")
    before = len(far.received())
    machine.run(f"cd {HOME}\n{install}")
    machine.run("systemctl restart imds receiver")
    with machine.file("/etc/seb/seb.env").open("a") as settings:
        settings.write(IMDS)
    eventually(lambda: machine.outcome("seb check").returncode == 0, what="seb check", timeout=60)
    machine.run(f"seb check{check}")
    eventually(lambda: len(far.received()) > before, what="a record", timeout=120)
    machine.run(f"echo s3cret > {HOME}/new-password")
    rotation = PageBlocks("docs/rotation.md", by="tests/ground/test_package.py")
    machine.run(f"cd {HOME}\n" + rotation.take("A file on each VM"))
    output = machine.run("stat -c '%a %U %G' /etc/seb/files/mqtt-password")
    assert output.strip() == "640 root seb"
    assert page.left() + rotation.left() == []
    machine.run(f"rm /opt/seb {HOME}/*.deb; systemctl stop imds; dpkg -r {NAME}")


def test_purge_leaves_nothing(machine: Machine) -> None:
    """A purge leaves no file, no account and no unit."""
    machine.run(f"dpkg -P {NAME}")
    assert left_behind(machine) == []


@pytest.mark.parametrize(
    ("name", "settings", "unit"),
    [(NAME, "seb.env", "seb"), (CONSOLE, "console.env", "seb-console")],
    ids=["bridge", "console"],
)
def test_the_rpm_holds_the_same(name: str, settings: str, unit: str, tmp_path: Path) -> None:
    """File by file: names, modes and content are those of the .deb; settings are configuration."""
    if not shutil.which("rpm"):
        pytest.skip("needs rpm")
    package, other = made(f"{name}_*_amd64.deb"), made(f"{name}-*.x86_64.rpm")
    subprocess.run(["dpkg-deb", "--extract", str(package), str(tmp_path)], check=True)
    listed = "[%{FILENAMES}\t%{FILEMODES:octal}\t%{FILEDIGESTS}\t%{FILEFLAGS:fflags}\n]"
    rows = [line.split("\t") for line in of_rpm(other, "--qf", listed).splitlines()]
    there = {path: (mode[-4:], digest) for path, mode, digest, _ in rows if mode.startswith("10")}
    here = {
        f"/{path.relative_to(tmp_path)}": (
            f"{path.stat().st_mode & 0o7777:04o}",
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in tmp_path.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    assert there == here
    assert [path for path, _, _, flags in rows if flags] == [f"/etc/seb/{settings}"]
    assert f"systemctl try-restart {unit}.service" in of_rpm(other, "--scripts")


def of_rpm(package: Path, *words: str) -> str:
    """What rpm says of a package file."""
    done = subprocess.run(
        ["rpm", "-qp", *words, str(package)], capture_output=True, text=True, check=True
    )
    return done.stdout
