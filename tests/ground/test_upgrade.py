"""From the packages of the last release to those of this checkout, and back, on a machine that
systemd has booted: bridge and console, with what they had stored and had not delivered.

The packages of 0.2.0 are made from its own commit. This checkout may bear the same version still,
so its packages get the next revision. Each step builds on those before it. `make dist` comes first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.eventually import eventually
from support.ground.doc_page import PageBlocks
from support.ground.nspawn import Machine, missing
from support.ground.packages import CONSOLE, NAME, left_behind, made, newer_deb, newer_rpm
from support.ground.released_packages import VERSION, released
from support.sinks.far_ends import IMDS, FarEnds

DATABASE = f"/var/lib/{CONSOLE}/console.db"
SCHEMA = "SELECT version_num FROM alembic_version"
KEEP = "-o Dpkg::Options::=--force-confold"
BACKLOG = '.sinks[] | select(.sink == "ops").backlog'
WHO = "http://127.0.0.1:8169/metadata/instance/compute?api-version=2021-02-01"
CONSOLE_SETTINGS = """\
SEB_CONSOLE_SOURCE__WEBHOOK__KIND=webhook
SEB_CONSOLE_ENROLL_KEY_FILE=/etc/seb/console/enroll.key
SEB_CONSOLE_PUBLIC_URL=http://127.0.0.1:9470
"""
pytestmark = pytest.mark.timeout(5400)  # the first run makes the packages of the release


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine that has neither package, and both kinds of both in /var/tmp."""
    today = {name: made(f"{name}_*_amd64.deb") for name in (NAME, CONSOLE)}
    if why := missing():
        pytest.skip(why)
    before = {name: released(f"{name}_*_amd64.deb") for name in (NAME, CONSOLE)}
    with Machine() as up:
        for name, path in before.items():
            up.file(f"/var/tmp/{name}-{VERSION}.deb").write_bytes(path.read_bytes())
        for name, path in today.items():
            work = tmp_path_factory.mktemp("newer")
            newer_deb(path, up.file(f"/var/tmp/{name}.deb"), work)
        yield up


@pytest.fixture(scope="module")
def far(machine: Machine) -> FarEnds:
    """A metadata service and a receiver of webhooks in the machine."""
    return FarEnds(machine)


def state(machine: Machine, unit: str = "seb") -> str:
    """Whether a service runs."""
    return machine.run(f"systemctl show -p ActiveState --value {unit}").strip()


def sql(machine: Machine, database: str, statement: str) -> str:
    """The first value that a statement gives."""
    program = (
        "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone())"
    )
    return machine.run(f'python3 -c "{program}" {database} "{statement}"').strip()


def sequences(far: FarEnds) -> list[int]:
    """The numbers of the records that the receiver has got, each once, heartbeats as well."""
    return sorted({int(each["sequence"]) for each in far.received()})


def vms(machine: Machine) -> dict[str, Any]:
    """The VMs that the console shows, by vmId."""
    result = machine.outcome("seb console vms --json")
    return {each["vmId"]: each for each in json.loads(result.stdout or '{"items": []}')["items"]}


def is_ready(machine: Machine) -> bool:
    """Whether the console serves."""
    return machine.outcome("curl -fsS http://127.0.0.1:9470/readyz").returncode == 0


def wait_for_the_console(machine: Machine) -> None:
    """Wait until the console serves."""
    eventually(lambda: is_ready(machine), what="a console that is ready", timeout=120)


def test_the_release_works(machine: Machine, far: FarEnds) -> None:
    """Both packages of 0.2.0: records arrive at a receiver and at the console."""
    both = f"/var/tmp/{CONSOLE}-{VERSION}.deb /var/tmp/{NAME}-{VERSION}.deb"
    machine.run(f"dpkg -i {both}", timeout=500)
    assert machine.run("seb version").strip() == VERSION
    machine.run(f"ln -s /usr/lib/{NAME} /opt/seb")
    far.make()
    machine.run("""
        systemctl start receiver
        install -m 0640 -g seb-console /dev/null /etc/seb/console/enroll.key
        openssl rand -base64 32 > /etc/seb/console/enroll.key
    """)
    machine.file("/etc/seb/console.env").write_text(CONSOLE_SETTINGS)
    machine.run("systemctl enable -q --now seb-console")
    wait_for_the_console(machine)
    eventually(
        lambda: machine.outcome(f"curl -fsS -H Metadata:true '{WHO}'").returncode == 0,
        what="a metadata service",
    )
    vm_id = machine.run(f"curl -fsS -H Metadata:true '{WHO}' | jq -r .vmId").strip()
    lines = machine.run(f"seb console enroll {vm_id} | grep ^SEB_SINK__CONSOLE__")
    machine.file("/etc/seb/seb.env").write_text(
        f"SEB_SINK__OPS__KIND=webhook\nSEB_SINK__OPS__URL=https://ops.example/seb\n{IMDS}{lines}"
    )
    machine.run("systemctl enable -q --now seb")
    eventually(lambda: len(sequences(far)) >= 4, what="four records", timeout=120)
    eventually(lambda: vm_id in vms(machine), what="the VM on the console", timeout=120)
    machine.file("/var/tmp/schema").write_text(sql(machine, DATABASE, SCHEMA))


def test_an_upgrade_with_a_backlog(machine: Machine, far: FarEnds) -> None:
    """What 0.2.0 had not delivered is delivered by today's, in order and without a gap."""
    machine.run("systemctl stop receiver")
    before = sequences(far)
    eventually(
        lambda: int(machine.run(f"seb outbox list --json | jq '{BACKLOG}'")) >= 3,
        what="a backlog",
        timeout=180,
    )
    machine.run("echo '# mine' >> /etc/seb/seb.env")
    machine.run(
        f"cd /var/tmp && apt-get install -y -q {KEEP} ./{NAME}.deb ./{CONSOLE}.deb", timeout=500
    )
    assert machine.run(f"dpkg-query -f '${{Version}}' -W {NAME}").endswith("+next")
    assert [state(machine), state(machine, "seb-console")] == ["active", "active"]
    assert "# mine" in machine.file("/etc/seb/seb.env").read_text()
    assert "# mine" not in machine.run("cat /etc/seb/*.dpkg-* 2>/dev/null || :")
    machine.run("systemctl start receiver")
    eventually(
        lambda: bool(far.received()) and sequences(far)[-1] > before[-1] + 8,
        what="the backlog and more",
        timeout=240,
    )
    numbers = sequences(far)
    missed = set(range(1, numbers[-1])) - set(numbers)
    assert len(missed) <= 5, missed  # heartbeats that a newer one replaced
    # The console was away while it converted its database: the bridge tries it again by itself.
    eventually(lambda: machine.outcome("seb check").returncode == 0, what="seb check", timeout=180)


def test_the_console_has_what_it_had(machine: Machine) -> None:
    """Its database is converted, the VM is heard, and `seb console check` finds nothing wrong."""
    wait_for_the_console(machine)
    assert sql(machine, DATABASE, SCHEMA) > machine.file("/var/tmp/schema").read_text()
    eventually(
        lambda: [each["contact"] for each in vms(machine).values()] == ["heard"],
        what="the VM on the console",
        timeout=120,
    )
    words = {line.split()[0] for line in machine.run("seb console check").splitlines()}
    assert words <= {"ok", "warn"}


def test_back_to_the_release(machine: Machine, far: FarEnds) -> None:
    """0.2.0 refuses the newer store and database, ends with 78 and changes nothing; once they are
    moved away as the bridge's page and the console's have it, it works.
    """
    page = PageBlocks("docs/rollout.md", by="tests/ground/test_upgrade.py")
    install, _, start = as_typed(page).partition("sudo systemctl start")
    machine.run(
        f"""
        systemctl stop seb-console
        cd /var/tmp && cp {NAME}-{VERSION}.deb {NAME}_{VERSION}-1_amd64.deb
        {install}
        apt-get install -y -q {KEEP} --allow-downgrades ./{CONSOLE}-{VERSION}.deb
        """,
        timeout=500,
    )
    assert machine.run("seb version").strip() == VERSION
    before = sql(machine, DATABASE, SCHEMA)
    for unit in (start.strip(), "seb-console"):
        machine.outcome(
            f"systemctl start {unit}"
        )  # it says 1 only of a service that tells when it is ready
        code = f"systemctl show -p ExecMainStatus --value {unit}"
        eventually(
            lambda code=code: machine.run(code).strip() == "78",
            what=f"exit code 78 of {unit}",
            timeout=120,
        )
    assert sql(machine, DATABASE, SCHEMA) == before
    count = len(far.received())
    machine.run(as_typed(page))
    assert page.left() == []
    machine.run(f"""
        systemctl stop seb-console
        mkdir /var/backups/newer && mv {DATABASE}* /var/backups/newer/
        systemctl start seb-console
    """)
    wait_for_the_console(machine)
    eventually(lambda: len(far.received()) > count + 1, what="records", timeout=180)
    eventually(lambda: len(vms(machine)) == 1, what="the VM on the console", timeout=120)


def as_typed(page: PageBlocks) -> str:
    """The page's next commands of the way back, with the answers that a person gives to apt."""
    return page.take("Upgrade, and back").replace(
        "apt-get install", f"apt-get install -y -q {KEEP}"
    )


def test_a_purge_leaves_nothing(machine: Machine) -> None:
    """Also of what 0.2.0 had made, and today's packages after it."""
    machine.run(
        f"cd /var/tmp && apt-get install -y -q {KEEP} ./{NAME}.deb ./{CONSOLE}.deb", timeout=500
    )
    assert [state(machine), state(machine, "seb-console")] == ["active", "active"]
    machine.run(f"""
        systemctl stop imds; rm /opt/seb
        SEB_PURGE_KEYS=yes apt-get purge -y -q {NAME} {CONSOLE}
        rm -rf /var/backups/newer /var/lib/private/{NAME}.newer
    """)
    assert left_behind(machine) == []


def test_the_rpm_upgrades_the_release(
    machine: Machine, far: FarEnds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The .rpm of today over that of 0.2.0: it runs on, with the settings and the store."""
    before = released(f"{NAME}-*.x86_64.rpm")
    machine.file(f"/var/tmp/{VERSION}.rpm").write_bytes(before.read_bytes())
    machine.file("/var/tmp/next.rpm").write_bytes(newer_rpm(tmp_path, monkeypatch).read_bytes())
    machine.run(f"rpm -i --nodeps /var/tmp/{VERSION}.rpm && ln -s /usr/lib/{NAME} /opt/seb")
    machine.run("systemctl start imds receiver")
    settings = f"SEB_SINK__OPS__KIND=webhook\nSEB_SINK__OPS__URL=https://ops.example/seb\n{IMDS}"
    machine.file("/etc/seb/seb.env").write_text(settings)
    count = len(far.received())
    machine.run("systemctl enable -q --now seb")
    eventually(lambda: len(far.received()) > count, what="a record", timeout=120)
    machine.run("rpm -U --nodeps /var/tmp/next.rpm")
    assert re.match(r"99", machine.run(f"rpm -q --qf '%{{VERSION}}' {NAME}"))
    assert state(machine) == "active"
    count = len(far.received())
    eventually(lambda: len(far.received()) > count, what="a record after it", timeout=180)
    machine.run(f"systemctl stop imds; rm /opt/seb; rpm -e {NAME}")
    assert machine.file("/etc/seb/seb.env.rpmsave").read_text() == settings
