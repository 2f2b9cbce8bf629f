"""The console's .deb on a machine that systemd has booted: alone, and beside the bridge.

Each step builds on those before it, so they run in the order of the file. `make dist` comes first.
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
from support.ground.packages import CONSOLE, NAME, left_behind, made, newer_deb

STATE = f"/var/lib/{CONSOLE}"
PROGRAM = f"/usr/lib/{CONSOLE}"
PAGE = PageBlocks("docs/console-install.md", by="tests/ground/test_package_console.py")
SETTINGS = """\
SEB_CONSOLE_SOURCE__WEBHOOK__KIND=webhook
SEB_CONSOLE_ENROLL_KEY_FILE=/etc/seb/console/enroll.key
SEB_CONSOLE_PUBLIC_URL=http://127.0.0.1:9470
"""
IMDS = """\
[Service]
ExecStart=/usr/bin/seb simulate host-maintenance --speed 30 --loop
"""
SQL = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(*(connection.execute(sys.argv[2]).fetchone() or ()))
connection.commit()
"""
OLDER = """
import pathlib, sys
import sqlalchemy
from alembic import command
from alembic.config import Config
import console.db
config = Config()
place = pathlib.Path(console.db.__file__).parent / "schema" / "migrations"
config.set_main_option("script_location", str(place))
engine = sqlalchemy.create_engine("sqlite:///" + sys.argv[1])
with engine.begin() as connection:
    config.attributes["connection"] = connection
    command.upgrade(config, "0001")
"""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine without either package, and with both in /var/tmp."""
    packages = {name: made(f"{name}_*_amd64.deb") for name in (CONSOLE, NAME)}
    if why := missing():
        pytest.skip(why)
    with Machine() as up:
        for name, path in packages.items():
            up.file(f"/var/tmp/{name}.deb").write_bytes(path.read_bytes())
        yield up


def property_of(machine: Machine, name: str) -> str:
    """A property of the console's service."""
    return machine.run(f"systemctl show -p {name} --value seb-console").strip()


def is_ready(machine: Machine) -> bool:
    """Whether the console serves."""
    return machine.outcome("curl -fsS http://127.0.0.1:9470/readyz").returncode == 0


def wait_until_ready(machine: Machine) -> None:
    """Wait until the console serves."""
    eventually(lambda: is_ready(machine), what="a console that is ready", timeout=120)


def schema_of(machine: Machine, database: str = f"{STATE}/console.db") -> str:
    """The version of a database's schema."""
    return sql(machine, database, "SELECT version_num FROM alembic_version")


def sql(machine: Machine, database: str, statement: str) -> str:
    """What a statement gives: the first value of its first row."""
    machine.file("/var/tmp/sql.py").write_text(SQL)
    return machine.run(f'python3 /var/tmp/sql.py {database} "{statement}"').strip()


def vms(machine: Machine) -> dict[str, Any]:
    """The VMs that the console shows, by vmId."""
    output = machine.run("seb console vms --json")
    return {each["vmId"]: each for each in json.loads(output)["items"]}


def steps() -> str:
    """The next block of the page, as a person without a terminal types it."""
    text = PAGE.take("Backup, upgrade, and back")
    return text.replace("apt-get install", "apt-get install -y -q")


def test_it_comes_without_the_bridge(machine: Machine) -> None:
    """Account, settings, command and service are there; nothing is enabled or started."""
    machine.run(f"dpkg -i /var/tmp/{CONSOLE}.deb && getent passwd seb-console && seb version")
    assert "enroll" in machine.run("seb console --help")
    assert machine.run("systemctl is-enabled seb-console || :").strip() == "disabled"
    assert property_of(machine, "ActiveState") == "inactive"
    told = machine.run("stat -c '%a %U %G' /etc/seb/console.env /etc/seb/console").splitlines()
    assert told == ["600 root root", "750 root seb-console"]
    assert machine.outcome("test -e /etc/seb/seb.env").returncode == 1


def test_check_is_about_the_service(machine: Machine) -> None:
    """With three lines in console.env and a key, `sudo seb console check` finds nothing wrong."""
    machine.run("""
        install -m 0640 -g seb-console /dev/null /etc/seb/console/enroll.key
        openssl rand -base64 32 > /etc/seb/console/enroll.key
    """)
    machine.file("/etc/seb/console.env").write_text(SETTINGS)
    output = machine.run("seb console check")
    assert {line.split()[0] for line in output.splitlines()} == {"ok"}, output
    assert f"{STATE}/console.db" in output


def test_it_serves_as_its_own_account(machine: Machine) -> None:
    """Enabled and started it is ready; the page is there; the database is its account's alone."""
    machine.run("systemctl enable -q --now seb-console")
    wait_until_ready(machine)
    pid = property_of(machine, "MainPID")
    assert machine.run(f"stat -c %U /proc/{pid}").strip() == "seb-console"
    assert machine.run(f"stat -Lc '%a %U' {STATE}").strip() == "700 seb-console"
    assert "<title>" in machine.run("curl -fsS http://127.0.0.1:9470/")


def test_a_bridge_beside_it_reports(machine: Machine) -> None:
    """The bridge's package takes the command over; with the lines of `enroll` its VM is shown."""
    machine.run(f"dpkg -i /var/tmp/{NAME}.deb && test ! -L /usr/bin/seb")
    machine.file("/etc/systemd/system/imds.service").write_text(IMDS)
    machine.run("systemctl daemon-reload && systemctl start imds")
    where = "http://127.0.0.1:8169/metadata/instance/compute?api-version=2021-02-01"
    eventually(
        lambda: machine.outcome(f"curl -fsS -H Metadata:true '{where}'").returncode == 0,
        what="a metadata service",
    )
    vm_id = machine.run(f"curl -fsS -H Metadata:true '{where}' | jq -r .vmId").strip()
    lines = machine.run(f"seb console enroll {vm_id} | grep ^SEB_SINK__CONSOLE__")
    with machine.file("/etc/seb/seb.env").open("a") as settings:
        settings.write(f"SEB_IMDS__URL=http://127.0.0.1:8169\n{lines}")
    machine.run("seb check && systemctl enable -q --now seb")
    eventually(lambda: vm_id in vms(machine), what="the VM on the console", timeout=120)
    assert vms(machine)[vm_id]["contact"] == "heard"


def test_an_upgrade_as_the_page_has_it_converts_the_database(
    machine: Machine, tmp_path: Path
) -> None:
    """A database of the first schema is today's after it; the copy is what it was."""
    head = schema_of(machine)
    machine.run(f"""
        systemctl stop seb-console
        rm -f {STATE}/console.db*
        cat > /var/tmp/older.py <<'END'\n{OLDER}\nEND
        {PROGRAM}/bin/python3.13 -I /var/tmp/older.py {STATE}/console.db
        chown -R --reference={STATE}/. {STATE}/.
    """)
    assert schema_of(machine) == "0001"
    newer_deb(machine.file(f"/var/tmp/{CONSOLE}.deb"), machine.file("/var/tmp/newer.deb"), tmp_path)
    machine.run("echo '# mine' >> /etc/seb/console.env")
    machine.run("cd /var/tmp; " + re.sub(r"\./\S+\.deb", "./newer.deb", steps()))
    wait_until_ready(machine)
    assert schema_of(machine) == head
    assert schema_of(machine, "/var/backups/seb-console/console.db") == "0001"
    assert machine.run(f"dpkg-query -f '${{Version}}' -W {CONSOLE}").endswith("+next")
    assert "# mine" in machine.file("/etc/seb/console.env").read_text()


def test_a_newer_database_is_refused(machine: Machine) -> None:
    """A console that is older than its database ends with 78, says so, and changes nothing."""
    machine.run("systemctl stop seb-console")
    sql(machine, f"{STATE}/console.db", "UPDATE alembic_version SET version_num = '9999'")
    machine.run("systemctl start seb-console")
    eventually(
        lambda: property_of(machine, "ExecMainStatus") == "78", what="exit code 78", timeout=60
    )
    assert "9999 is newer" in machine.run("journalctl -u seb-console -o cat --no-pager | tail -20")
    assert schema_of(machine) == "9999"


def test_the_way_back_as_the_page_has_it(machine: Machine) -> None:
    """The older package and the copy of the database work again; the newer database is kept."""
    old = re.sub(r"\./\S+\.deb", f"./{CONSOLE}.deb", steps())
    machine.run("cd /var/tmp; " + old)
    wait_until_ready(machine)
    assert not machine.run(f"dpkg-query -f '${{Version}}' -W {CONSOLE}").endswith("+next")
    assert schema_of(machine, "/var/backups/console.db.newer") == "9999"


def test_the_bridge_goes_and_the_console_stays(machine: Machine) -> None:
    """A purge of the bridge leaves the console, its settings and the command."""
    machine.run(f"systemctl stop imds; dpkg -P {NAME}")
    assert property_of(machine, "ActiveState") == "active"
    machine.run("test -L /usr/bin/seb && seb console vms && test -e /etc/seb/console/enroll.key")
    assert machine.outcome("test -e /etc/seb/seb.env").returncode == 1


def test_removal_and_purge(machine: Machine) -> None:
    """Removal leaves settings and database, a purge no file, no account and no unit."""
    machine.run(f"dpkg -r {CONSOLE}")
    assert property_of(machine, "LoadState") == "not-found"
    machine.run(
        f"test ! -L /usr/bin/seb && test -e {STATE}/console.db && test -e /etc/seb/console.env"
    )
    kept = machine.outcome(f"dpkg -P {CONSOLE}")
    assert "are kept" in kept.stderr
    machine.run("test -s /etc/seb/console/enroll.key")
    machine.run(f"dpkg -i /var/tmp/{CONSOLE}.deb && SEB_PURGE_KEYS=yes dpkg -P {CONSOLE}")
    machine.run("rm -rf /var/backups/seb-console")
    assert left_behind(machine) == []


@pytest.mark.usefixtures("machine")
def test_everything_was_executed() -> None:
    """No block that the page says is run here was left out."""
    assert PAGE.left() == []
