"""Both packages on a Debian 11 (glibc 2.31, systemd 247), whose Python is too old for a checkout.

Each step builds on those before it, so they run in the order of the file. `make dist` comes first.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.eventually import eventually
from support.ground.nspawn import HOME, Machine, missing
from support.ground.packages import CONSOLE, NAME, made
from support.sinks.far_ends import IMDS, PASSWORD, FarEnds

SECRET = "/etc/seb/credentials/SEB_SINK__MQTT__PASSWORD"
DROP_IN = f"[Service]\nLoadCredential=SEB_SINK__MQTT__PASSWORD:{SECRET}\n"
SETTINGS = """\
SEB_SINK__MQTT__HOST=broker.example
SEB_SINK__MQTT__PORT=8883
SEB_SINK__MQTT__USERNAME=vm
SEB_SINK__OPS__KIND=webhook
SEB_SINK__OPS__URL=https://ops.example/seb
"""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A Debian 11 with both packages in root's home."""
    packages = {name: made(f"{name}_*_amd64.deb") for name in (CONSOLE, NAME)}
    if why := missing():
        pytest.skip(why)
    with Machine("bullseye") as up:
        for name, path in packages.items():
            up.file(f"{HOME}/{name}.deb").write_bytes(path.read_bytes())
        yield up


def test_the_bridge_works(machine: Machine) -> None:
    """Installed by apt; its secret is handed over by systemd, and each sink gets records."""
    machine.run(f"apt-get install -y -q {HOME}/{NAME}.deb && ln -s /usr/lib/{NAME} /opt/seb")
    far = FarEnds(machine)
    far.make()
    machine.run("systemctl start receiver")
    machine.file("/etc/seb/seb.env").write_text(SETTINGS + IMDS)
    secret = machine.file(SECRET)
    secret.write_text(PASSWORD)
    secret.chmod(0o600)
    drop_in = machine.file("/etc/systemd/system/seb.service.d/secrets.conf")
    drop_in.parent.mkdir()
    drop_in.write_text(DROP_IN)
    machine.run("systemctl daemon-reload && systemctl enable -q --now seb")
    eventually(lambda: bool(far.received()), what="a record", timeout=120)
    eventually(lambda: machine.outcome("seb status").returncode == 0, what="status", timeout=60)
    assert machine.run("seb status | grep -c ' ok '").strip() == "2"
    machine.run("seb check")


def test_the_service_reads_its_secrets_without_credentials(machine: Machine) -> None:
    """With the drop-in that older systemds get, and none of LoadCredential=, it works as well."""
    machine.run(f"""
        rm /etc/systemd/system/seb.service.d/secrets.conf
        ln -s /usr/share/{NAME}/credentials-from-files.conf /etc/systemd/system/seb.service.d/
        systemctl daemon-reload && systemctl restart seb
    """)
    eventually(
        lambda: machine.outcome("seb status | grep -q '^mqtt *ok '").returncode == 0,
        what="mqtt",
        timeout=120,
    )
    assert machine.run(f"stat -c '%a %U %G' {SECRET}").strip() == "640 root seb"


def test_the_console_works(machine: Machine) -> None:
    """Installed beside it, it is ready, also with PostgreSQL."""
    machine.run(f"""
        apt-get install -y -q {HOME}/{CONSOLE}.deb
        install -m 0640 -g seb-console /dev/null /etc/seb/console/enroll.key
        openssl rand -base64 32 > /etc/seb/console/enroll.key
        systemctl start postgresql
    """)
    machine.file("/var/tmp/role.sql").write_text(
        "CREATE ROLE seb LOGIN PASSWORD 's3cret';\nCREATE DATABASE seb OWNER seb;\n"
    )
    machine.run("su postgres -c 'psql -q -f /var/tmp/role.sql'")
    machine.file("/etc/seb/console.env").write_text(
        "SEB_CONSOLE_SOURCE__WEBHOOK__KIND=webhook\n"
        "SEB_CONSOLE_ENROLL_KEY_FILE=/etc/seb/console/enroll.key\n"
        "SEB_CONSOLE_DATABASE=postgresql://seb:s3cret@127.0.0.1/seb\n"
    )
    machine.run("seb console check && systemctl enable -q --now seb-console")
    eventually(
        lambda: machine.outcome("curl -fsS http://127.0.0.1:9470/readyz").returncode == 0,
        what="a console that is ready",
        timeout=120,
    )


def test_both_go(machine: Machine) -> None:
    """A purge of both leaves no program and no account."""
    machine.run(f"systemctl stop imds; SEB_PURGE_KEYS=yes apt-get purge -y -q {NAME} {CONSOLE}")
    assert machine.outcome("getent passwd seb || getent passwd seb-console").returncode != 0
    assert machine.outcome("test -e /etc/seb").returncode == 1
