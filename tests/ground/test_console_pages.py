"""The console's pages from nothing to a restored console, each block as it stands in its page: with
the package, HTTPS only through nginx, a private authority, a bridge that reports; then the loss of
the machine, new keys, VMs that are gone, and PostgreSQL.

Each step builds on those before it, so they run in the order of the file. `make dist` comes first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.eventually import eventually
from support.ground.doc_page import PageBlocks, blocks
from support.ground.nspawn import HOME, Machine, missing
from support.ground.packages import CONSOLE, NAME, made
from support.sinks.throwaway_ca import ThrowawayCa

HERE = "tests/ground/test_console_pages.py"
INSTALL = "docs/console-install.md"
NAMES = (
    *("console-install.md", "console-sources.md", "console-login.md", "console-approving.md"),
    *("private-authorities.md", "disaster-recovery.md", "rotation.md", "decommissioning.md"),
    "rollout.md",
)
LOGIN = """\
SEB_CONSOLE_LOGIN__MODE=proxy
SEB_CONSOLE_LOGIN__PROXIES=["127.0.0.1"]
SEB_CONSOLE_ROLES={"viewer": ["group:operators"], "admin": ["user:mia@example.com"]}
"""
IMDS = """\
[Service]
ExecStart=/usr/lib/scheduled-events-bridge/bin/seb simulate host-maintenance --speed 30 --loop
"""
WHO = "http://127.0.0.1:8169/metadata/instance/compute?api-version=2021-02-01"
GONE = "0b0c7d2e-8d55-4c0b-9a3e-5b1f3f6a1c1e"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine with both packages in the home folder, and a private authority's certificate."""
    with prepared() as up:
        ca = ThrowawayCa(up.file(f"{HOME}/authority"))
        pair = ca.server(hosts=("console.example",))
        up.file(f"{HOME}/company-ca.pem").write_bytes(ca.cert.read_bytes())
        tls = up.file("/etc/nginx/tls")
        tls.mkdir()
        (tls / "console.pem").write_bytes(pair.cert.read_bytes())
        (tls / "console.key").write_bytes(pair.key.read_bytes())
        yield up


def prepared() -> Machine:
    """A machine that has the packages, under the names that the pages use."""
    packages = {name: made(f"{name}_*_amd64.deb") for name in (CONSOLE, NAME)}
    if why := missing():
        pytest.skip(why)
    machine = Machine()
    for name, path in packages.items():
        target = machine.file(f"{HOME}/{name}_0.2.0-1_amd64.deb")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return machine


@pytest.fixture(scope="module")
def pages() -> dict[str, PageBlocks]:
    """The blocks of each page that this file runs."""
    return {name: PageBlocks(f"docs/{name}", by=HERE) for name in NAMES}


def do(machine: Machine, script: str, *, typed: str | None = None) -> str:
    """Run a block in the person's folder; `typed` is what the person writes into the editor."""
    text = f"cd {HOME}\n" + script.replace("apt-get install", "apt-get install -y -q")
    if typed is None:
        return machine.run(text)
    machine.type_into_editor(text, typed)
    return ""


def settings(page: str, *names: str) -> str:
    """The lines of the page's files of settings that hold one of the names."""
    texts = [each.text for each in blocks(page, "ini") if each.path == "/etc/seb/console.env"]
    (found,) = [each for each in texts if all(name in each for name in names)]
    return found


def console_env(machine: Machine) -> Path:
    """The console's settings."""
    return machine.file("/etc/seb/console.env")


def wait_until_ready(machine: Machine) -> None:
    """Wait until the console serves."""
    eventually(
        lambda: machine.outcome("curl -fsS http://127.0.0.1:9470/readyz").returncode == 0,
        what="a console that is ready",
        timeout=120,
    )


def test_install(machine: Machine, pages: dict[str, PageBlocks]) -> None:
    """The package, the key of enrolment, the settings, and a console that is ready."""
    do(machine, pages["console-install.md"].take("Install"))
    do(machine, pages["console-sources.md"].take("HTTPS only"))
    text = settings("docs/console-sources.md", "WEBHOOK", "ENROLL_KEY_FILE") + LOGIN
    do(machine, pages["console-install.md"].take("Install"), typed=text)
    wait_until_ready(machine)


def test_the_rollouts_page_says_the_same(machine: Machine, pages: dict[str, PageBlocks]) -> None:
    """Its short way is the same steps again, which change nothing."""
    text = console_env(machine).read_text()
    do(machine, pages["rollout.md"].take("The console"), typed=text)
    wait_until_ready(machine)


def test_a_private_authority(machine: Machine, pages: dict[str, PageBlocks]) -> None:
    """Trusted by the system and in a file; nginx as the page has it, with its certificate."""
    page = pages["private-authorities.md"]
    do(machine, page.take("Trust an authority"))
    do(machine, page.take("Trust an authority"))
    assert "Certificate Sign" in do(machine, page.take("What an authority must have"))
    page_has = [block.text for block in blocks("docs/console-login.md", "nginx")]
    for number, text in enumerate(page_has[:2]):
        site = machine.file(f"/etc/nginx/sites-enabled/console{number}")
        site.write_text(text)
        machine.run("nginx -t")
        if number:  # the second wants oauth2-proxy; nginx takes it, and the first serves
            site.unlink()
    machine.run("echo 127.0.0.1 console.example >> /etc/hosts; systemctl start nginx")
    assert page_answers(machine) == "401"


def test_passwords_of_nginx(machine: Machine, pages: dict[str, PageBlocks]) -> None:
    """The block of oauth2-proxy with the page's other location lets in who has a password, under
    that name alone; the tests below go through it.
    """
    machine.file("/etc/nginx/sites-enabled/console0").write_text(with_passwords())
    do(machine, pages["console-login.md"].take("A proxy that knows the people"))
    mia = f"-u mia@example.com:$(cat {HOME}/mia.txt)"
    eventually(lambda: page_answers(machine, mia) == "200", what="the page for a password")
    assert page_answers(machine) == "401"
    assert page_answers(machine, "-H 'X-Forwarded-User: mia@example.com'") == "401"
    assert page_answers(machine, "-u mia@example.com:wrong") == "401"
    assert page_answers(machine, "-H 'Authorization: Bearer wrong'") == "401"


def page_answers(machine: Machine, words: str = "") -> str:
    """The status of the page, asked through nginx."""
    url = "https://console.example/"
    return machine.run(f"curl -s -o /dev/null -w '%{{http_code}}' {words} {url}").strip()


def with_passwords() -> str:
    """The page's settings of nginx for passwords: another way to ask who it is."""
    _, text, people = (each.text for each in blocks("docs/console-login.md", "nginx"))
    places = re.split(r"^(?=  (?:location |# VMs))", text, flags=re.MULTILINE)
    begins = [place.partition("{")[0].strip() for place in places]
    return "".join(
        {"location /": people, "location /oauth2/": ""}.get(begin, place)
        for begin, place in zip(begins, places, strict=True)
    )


def test_a_vm_is_enrolled_and_heard(machine: Machine, pages: dict[str, PageBlocks]) -> None:
    """A bridge with the lines of the page's command reports through nginx, with the private
    authority.
    """
    do(machine, f"apt-get install ./{NAME}_0.2.0-1_amd64.deb")
    machine.file("/etc/systemd/system/imds.service").write_text(IMDS)
    machine.run("systemctl daemon-reload && systemctl start imds")
    eventually(
        lambda: machine.outcome(f"curl -fsS -H Metadata:true '{WHO}'").returncode == 0,
        what="a metadata service",
    )
    vm_id = machine.run(f"curl -fsS -H Metadata:true '{WHO}' | jq -r .vmId").strip()
    single = pages["console-sources.md"].take("Enroll VMs")
    assert f"enroll {vm_id}" in single, "the page's VM is the simulator's"
    lines = do(machine, single)
    machine.file(f"{HOME}/vms.txt").write_text(
        f"# the fleet\n{vm_id} vm-web-01\n{GONE} vm-web-02\n"
    )
    do(machine, pages["console-sources.md"].take("A whole fleet"))
    assert machine.file(f"{HOME}/enrolled/vm-web-01.env").read_text().strip() == lines.strip()
    machine.file("/etc/seb/seb.env").write_text(f"SEB_IMDS__URL=http://127.0.0.1:8169\n{lines}")
    machine.run("seb check && systemctl enable -q --now seb")
    token = do(machine, pages["console-login.md"].take("Programs")).strip().splitlines()[-1]
    assert token
    reader = machine.run("seb console token add reader --role viewer --days 1").strip()
    machine.file(f"{HOME}/token").write_text(reader)
    eventually(lambda: vm_id in vms(machine), what="the VM on the console", timeout=120)
    assert vms(machine)[vm_id] == "heard"
    machine.run("seb status")


def vms(machine: Machine) -> dict[str, str]:
    """How each VM is heard, asked through nginx with a token."""
    output = machine.run(
        f"SEB_CONSOLE_URL=https://console.example SEB_CONSOLE_TOKEN=$(cat {HOME}/token) "
        "seb console vms --json"
    )
    return {each["vmId"]: each["contact"] for each in json.loads(output)["items"]}


def test_approving(machine: Machine, pages: dict[str, PageBlocks]) -> None:
    """The key, the trust file, and an audit that verifies."""
    page = pages["console-approving.md"]
    do(machine, page.take("Let it approve"))
    with console_env(machine).open("a") as file:
        file.write(settings("docs/console-approving.md", "CONSOLE_KEY="))
    do(machine, page.take("Let it approve"))
    wait_until_ready(machine)
    assert '"keys"' in machine.file(f"{HOME}/trust.jwks").read_text()
    assert do(machine, page.take("The audit")).startswith("ok")


def test_the_loss_of_the_machine(machine: Machine, pages: dict[str, PageBlocks]) -> None:
    """A backup beside the running console, and on another machine the same fleet with good keys."""
    page = pages["disaster-recovery.md"]
    do(machine, page.take("Backup, with the console running"))
    with prepared() as other:
        for name in ("console.db", "etc.tar.gz"):
            kept = machine.file(f"/var/backups/seb-console/{name}").read_bytes()
            other.file(f"{HOME}/{name}").write_bytes(kept)
        do(other, page.take("Restore on another machine"))
        wait_until_ready(other)
        assert other.run("seb console audit verify").startswith("ok")
        line = "seb console enroll --json " + GONE
        assert json.loads(other.run(line)) == json.loads(machine.run(line))
        token = machine.file(f"{HOME}/token").read_text()
        output = other.run(f"SEB_CONSOLE_TOKEN={token} seb console vms --json")
        assert len(json.loads(output)["items"]) == 1


def test_keys_are_rotated(machine: Machine, pages: dict[str, PageBlocks]) -> None:
    """Both keys are trusted for a while, then the new one alone; new secrets for the fleet."""
    page = pages["rotation.md"]
    title = "The key that signs approvals"
    do(machine, page.take(title))
    trusted = machine.file(f"{HOME}/trust.jwks")
    old, new = (each["kid"] for each in json.loads(trusted.read_text())["keys"])
    do(machine, page.take(title))
    assert [each["kid"] for each in json.loads(trusted.read_text())["keys"]] == [new]
    assert old != new
    before = machine.file(f"{HOME}/enrolled/vm-web-01.env").read_text()
    do(machine, page.take("What the console gave a VM"))
    after = machine.file(f"{HOME}/enrolled/vm-web-01.env").read_text()
    assert after != before
    machine.file("/etc/seb/seb.env").write_text(f"SEB_IMDS__URL=http://127.0.0.1:8169\n{after}")
    machine.run("systemctl restart seb")
    wait_until_ready(machine)
    eventually(lambda: machine.outcome("seb check").returncode == 0, what="seb check", timeout=90)


def test_vms_that_are_gone(machine: Machine, pages: dict[str, PageBlocks]) -> None:
    """What Azure does not have any more loses its secrets, here and at the broker."""
    page = pages["decommissioning.md"]
    machine.run(f"touch {HOME}/azure.txt /etc/mosquitto/passwd")
    machine.run(f"mosquitto_passwd -b /etc/mosquitto/passwd {next(iter(vms(machine)))} x")
    listed = page.take("From a list").replace("$TOKEN", f"$(cat {HOME}/token)")
    vm_id = do(machine, listed).strip()
    assert vm_id in vms(machine)
    do(machine, page.take("From a list"))
    do(machine, page.take("From a list"))
    assert machine.file("/etc/mosquitto/passwd").read_text() == ""
    eventually(
        lambda: "failing" in machine.outcome("seb status").stdout, what="a refusal", timeout=150
    )


def test_postgresql_with_the_package(machine: Machine, pages: dict[str, PageBlocks]) -> None:
    """The packaged console connects, makes its tables, and is ready."""
    machine.run("systemctl start postgresql")
    do(machine, pages["console-install.md"].take("With PostgreSQL"))
    with console_env(machine).open("a") as file:
        file.write(settings("docs/console-install.md", "CONSOLE_DATABASE="))
    machine.run("seb console check && systemctl restart seb-console")
    wait_until_ready(machine)
    assert machine.run("seb console token add pg --role viewer --days 1").strip()


@pytest.mark.usefixtures("machine")
def test_everything_was_executed(pages: dict[str, PageBlocks]) -> None:
    """No block that a page says is run here was left out."""
    assert {name: page.left() for name, page in pages.items() if page.left()} == {}
