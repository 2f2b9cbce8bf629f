"""Every recipe's page on a machine with the bridge's package: what it has people type installs a
preparation that the bridge accepts, and the configurations that it shows are accepted by their
programs. `make dist` comes first; tests/survive runs the recipes on their services.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ground.doc_page import ROOT, PageBlocks, blocks
from support.ground.nspawn import Machine, missing
from support.ground.packages import NAME, made
from support.ports import free_port
from support.sinks.far_ends import IMDS

HERE = "tests/ground/test_recipe_pages.py"
RECIPES = sorted(path.parent.name for path in (ROOT / "deploy" / "recipes").glob("*/README.md"))
SIMULATOR = f"""\
[Service]
ExecStart=/usr/lib/{NAME}/bin/seb simulate host-maintenance --speed 30 --loop
"""
SINK = "SEB_SINK__FILE__PATH=/var/lib/scheduled-events-bridge/records.jsonl\n"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine with the bridge's package, and a metadata service."""
    package = made(f"{NAME}_*_amd64.deb")
    if why := missing():
        pytest.skip(why)
    with Machine() as up:
        up.file("/var/tmp/seb.deb").write_bytes(package.read_bytes())
        up.file("/etc/systemd/system/imds.service").write_text(SIMULATOR)
        up.run("dpkg -i /var/tmp/seb.deb", timeout=500)
        # What the packages of Pacemaker and RabbitMQ make.
        up.run("""
            systemctl daemon-reload && systemctl start imds
            groupadd haclient
            install -D -m 0400 /dev/null /var/lib/rabbitmq/.erlang.cookie
        """)
        yield up


def page_of(recipe: str) -> PageBlocks:
    """The commands of a recipe's page."""
    return PageBlocks(f"deploy/recipes/{recipe}/README.md", by=HERE)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_installed_as_its_page_has_it(machine: Machine, recipe: str) -> None:
    """The bridge runs with it: program, rules and drop-in are where they belong."""
    page = page_of(recipe)
    machine.run("rm -rf /etc/systemd/system/seb.service.d")
    machine.file("/etc/seb/seb.env").write_text(IMDS + SINK)
    # The person at the editor leaves the lines as they are.
    machine.run(page.take("Install"), timeout=500, env={"SUDO_EDITOR": "true"})
    program = f"/usr/local/lib/seb/{recipe}.sh"
    machine.run(f"test -x {program}")
    assert machine.run("systemctl is-active seb").strip() == "active"
    assert f'SEB_SINK__RECIPE__COMMAND=["{program}"]' in machine.run("seb config show")
    if recipe == "patroni":
        machine.run(page.take("Install"))
        assert machine.run("stat -c '%a %G' /etc/seb/patroni.curl").strip() == "640 seb"
        assert "NAME:PASSWORD" in machine.run("sudo -u seb cat /etc/seb/patroni.curl")
    assert [each for each in page.left() if not each.startswith("etcdctl")] == []
    machine.run("systemctl stop seb")


def test_azure_is_asked_again(machine: Machine) -> None:
    """After an event that was played, the line that named the simulator is gone."""
    page = PageBlocks("deploy/recipes/README.md", by=HERE)
    machine.file("/etc/seb/seb.env").write_text(IMDS + SINK)
    machine.run(page.take("Try it"))
    assert machine.file("/etc/seb/seb.env").read_text() == SINK
    machine.run("systemctl stop seb")
    assert page.left() == []


def test_the_role_that_etcd_gives(tmp_path: Path) -> None:
    """An etcd takes the commands that make the user and its role."""
    if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
        pytest.skip("needs etcd-server and etcd-client; make survive-etcd installs them")
    page = page_of("etcd")
    page.take("Install")
    script = page.take("Install")
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    options = [*("--data-dir", str(tmp_path)), *("--listen-client-urls", client)]
    options += [*("--advertise-client-urls", client), *("--listen-peer-urls", peer)]
    with subprocess.Popen(["etcd", *options], stderr=subprocess.DEVNULL) as etcd:
        try:
            wait = "until etcdctl endpoint health; do sleep 0.2; done"
            subprocess.run(
                ["bash", "-ec", f"{wait}\n{script}etcdctl user get seb"],
                env={**os.environ, "ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": client},
                check=True,
                timeout=120,
            )
        finally:
            etcd.terminate()
    assert page.left() == []


def test_what_nginx_shows(machine: Machine) -> None:
    """It takes the page's location."""
    (block,) = blocks("deploy/recipes/haproxy/README.md", "nginx")
    machine.file("/etc/nginx/sites-enabled/health").write_text(
        f"server {{\nlisten 127.0.0.1:8090;\n{block.text}}}\n"
    )
    machine.run("nginx -t")


@pytest.mark.parametrize("recipe", ["haproxy", "patroni"])
def test_what_haproxy_shows(recipe: str, tmp_path: Path) -> None:
    """It takes the page's parts of a configuration."""
    if not (haproxy := shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")):
        pytest.skip("needs haproxy; make survive-tools installs it")
    (block,) = blocks(f"deploy/recipes/{recipe}/README.md", "haproxy")
    path = tmp_path / "haproxy.cfg"
    defaults = "".join(f"  timeout {each} 1s\n" for each in ("connect", "client", "server"))
    listens = "frontend own\n  bind 127.0.0.1:8091\n"
    path.write_text(f"defaults\n  mode tcp\n{defaults}{listens}{block.text}")
    subprocess.run([haproxy, "-c", "-f", str(path)], check=True)
