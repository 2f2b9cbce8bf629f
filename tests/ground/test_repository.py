"""The repository of `make repository` on a machine that systemd has booted: apt checks it and
installs from it, as docs/packages.md has it. `make dist` and `make dist-tools` come first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ground.cache import ROOT
from support.ground.doc_page import PageBlocks
from support.ground.nspawn import HOME, Machine, missing
from support.ground.packages import NAME, made
from support.sinks.throwaway_ca import ThrowawayCa

KEY = "packages@example.invalid"
SITE = """\
server {
  listen 443 ssl;
  server_name packages.example;
  ssl_certificate /etc/nginx/tls/server.pem;
  ssl_certificate_key /etc/nginx/tls/server.key;
  location /seb/ { alias /srv/repository/; }
}
"""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def page() -> PageBlocks:
    """The blocks that are run here."""
    return PageBlocks("docs/packages.md", by="tests/ground/test_repository.py")


@pytest.fixture(scope="module")
def repository(page: PageBlocks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Both repositories, signed with a key that is made for it."""
    made(f"{NAME}_*_amd64.deb")
    if names := [
        each for each in ("gpg", "apt-ftparchive", "createrepo_c") if not shutil.which(each)
    ]:
        pytest.skip(f"needs {', '.join(names)}; make dist-tools installs them")
    home = tmp_path_factory.mktemp("g")
    home.chmod(0o700)
    environment = {**os.environ, "GNUPGHOME": str(home), "SEB_RELEASE_KEY": KEY}
    key = ["--quick-generate-key", KEY, "rsa3072", "sign", "never"]
    subprocess.run(
        ["gpg", "--batch", "--passphrase", "", *key],
        env=environment,
        check=True,
        capture_output=True,
    )
    script = page.take("A repository")
    subprocess.run(["bash", "-ec", script], cwd=ROOT, env=environment, check=True)
    yield ROOT / "repository"
    shutil.rmtree(ROOT / "repository")


@pytest.fixture(scope="module")
def machine(repository: Path) -> Iterator[Machine]:
    """A machine that has the repository at packages.example, and no other source of packages."""
    if why := missing():
        pytest.skip(why)
    with Machine() as up:
        shutil.copytree(repository, up.file("/srv/repository"))
        pair = ThrowawayCa(up.file(f"{HOME}/ca")).server(hosts=("packages.example",))
        (up.file("/etc/nginx/tls")).mkdir()
        up.file("/etc/nginx/tls/server.pem").write_bytes(pair.cert.read_bytes())
        up.file("/etc/nginx/tls/server.key").write_bytes(pair.key.read_bytes())
        up.file("/etc/nginx/sites-enabled/packages").write_text(SITE)
        up.run(f"""
            cp {HOME}/ca/ca.pem /usr/local/share/ca-certificates/ca.crt
            update-ca-certificates
            echo 127.0.0.1 packages.example >> /etc/hosts
            rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
            systemctl start nginx
        """)
        yield up


def test_apt_installs_from_it(machine: Machine, page: PageBlocks) -> None:
    """The key, the source, the update and the installation, as the page has them."""
    machine.run(page.take("A repository"))
    machine.run("seb version && getent passwd seb")
    assert page.left() == []


def test_what_somebody_else_put_there_is_refused(machine: Machine) -> None:
    """A package that is not the one that was signed is not installed."""
    machine.run(f"""
        dpkg -P {NAME}
        apt-get clean
        echo more >> /srv/repository/apt/pool/$(ls /srv/repository/apt/pool | grep bridge)
    """)
    done = machine.outcome(f"apt-get install -y {NAME}")
    assert done.returncode != 0
    assert machine.outcome("test -e /usr/bin/seb").returncode == 1
