"""docs/docker.md, step by step: the Dockerfile built and run by a container engine. The steps
build on each other, so they run in the order of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.eventually import eventually
from support.ground.cache import ROOT
from support.ground.doc_page import PageBlocks, files
from support.ground.podman import Engine, kill, missing, process_of
from support.sinks.far_ends import IMDS, PASSWORD, receiver, records
from support.sinks.throwaway_ca import ThrowawayCa

PAGE = "docs/docker.md"
STATE = "/var/lib/scheduled-events-bridge"
SEB = ROOT / ".venv" / "bin" / "seb"
pytestmark = pytest.mark.timeout(600)


class ContainerVm:
    """The VM that the page is read on: an engine, a directory, and what the settings name."""

    def __init__(self, engine: Engine, home: Path) -> None:
        self.engine = engine
        self.home = home
        self.received = home / "received.jsonl"

    def far_ends(self) -> None:
        """An IMDS and a broker; the receiver comes later."""
        simulate = ("simulate", "host-maintenance", "--speed", "30", "--loop")
        self.engine.start(str(SEB), *simulate)
        (self.home / "passwd").touch(mode=0o600)
        self.engine.run(f"mosquitto_passwd -b {self.home}/passwd vm {PASSWORD}")
        lines = ("listener 1883 127.0.0.1", "user root", f"password_file {self.home}/passwd")
        (self.home / "broker.conf").write_text("\n".join([*lines, ""]))
        self.engine.start("mosquitto", "-c", str(self.home / "broker.conf"))

    def start_receiver(self) -> None:
        """The webhook's far end."""
        source = receiver(
            cert=self.home / "server.pem", key=self.home / "server.key", received=self.received
        )
        self.engine.start("python3", "-c", source)

    def state(self, name: str) -> str:
        """A value of the container's state."""
        return self.engine.run(f"docker inspect --format '{{{{.State.{name}}}}}' seb").strip()

    def answers(self) -> bool:
        """Whether the bridge's own check of its poll loop passes."""
        return self.engine.outcome("docker exec seb seb status --alive").returncode == 0


@pytest.fixture(scope="module")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerVm]:
    """A VM with an engine, in the directory of the settings."""
    if why := missing():
        pytest.skip(why)
    home = tmp_path_factory.mktemp("docker")
    ca = ThrowawayCa(home)
    ca.server(hosts=("broker.example", "ops.example"))
    with Engine(home, trusted=ca.cert, hosts=("broker.example", "ops.example")) as engine:
        made = ContainerVm(engine, home)
        made.far_ends()
        yield made


@pytest.fixture(scope="module")
def page() -> PageBlocks:
    """The page, whose blocks are taken one after the other."""
    return PageBlocks(PAGE)


TITLE = "Run the bridge in a container on a VM"


def test_build(vm: ContainerVm, page: PageBlocks) -> None:
    """The image builds as the page says, with and without managed identity."""
    done = vm.engine.outcome(page.take(TITLE), where=ROOT, timeout=580)
    assert done.returncode == 0, done.stderr[-3000:]


def test_check(vm: ContainerVm, page: PageBlocks) -> None:
    """`seb check` in the container finds what is missing, and passes once it is there."""
    (vm.home / "seb.env").write_text(files(PAGE)["seb.env"] + IMDS)
    (vm.home / "mqtt").write_text(PASSWORD)
    vm.engine.run(page.take(TITLE))
    script = page.take(TITLE)
    first = vm.engine.outcome(script)
    assert (first.returncode, "FAIL" in first.stdout) == (69, True), first
    vm.start_receiver()
    eventually(lambda: vm.engine.outcome(script).returncode == 0, what="success", timeout=60)


def test_start(vm: ContainerVm, page: PageBlocks) -> None:
    """The container starts, and its poll loop works."""
    vm.engine.run(page.take(TITLE))
    eventually(vm.answers, what="the first poll", timeout=60)


def test_health(vm: ContainerVm) -> None:
    """The image's health check passes."""
    assert vm.engine.outcome("docker healthcheck run seb").returncode == 0
    checked = vm.engine.run("docker inspect --format '{{json .Config.Healthcheck.Test}}' seb")
    assert json.loads(checked) == ["CMD", "seb", "status", "--alive"]


def test_rights(vm: ContainerVm) -> None:
    """It runs as 65532, without capabilities, and can write to its volume only."""
    output = vm.engine.run("docker exec seb cat /proc/1/status; docker exec seb id -u")
    status = dict(line.split(":\t", 1) for line in output.splitlines() if ":\t" in line)
    assert (int(status["CapEff"], 16), status["NoNewPrivs"], output.split()[-1]) == (
        0,
        "1",
        "65532",
    )
    for place in ("/", "/tmp", "/opt/seb"):
        assert vm.engine.outcome(f"docker exec seb touch {place}/x").returncode != 0


def test_state_is_private(vm: ContainerVm) -> None:
    """Every file in the volume is its owner's only, whatever the engine's umask is."""
    mount = vm.engine.run("docker volume inspect seb --format '{{.Mountpoint}}'").strip()
    modes = {path.name: path.lstat().st_mode & 0o077 for path in Path(mount).rglob("*")}
    assert "seb.db" in modes
    assert {name: oct(mode) for name, mode in modes.items() if mode} == {}


def test_look(vm: ContainerVm, page: PageBlocks) -> None:
    """Every command for looking at it answers."""
    output = vm.engine.run(page.take("Look at it"))
    assert "mqtt" in output


def test_delivery(vm: ContainerVm) -> None:
    """Records arrive at the webhook."""
    eventually(lambda: len(records(vm.received)) >= 2, what="records", timeout=60)


def test_kill(vm: ContainerVm) -> None:
    """After kill -9 the engine starts it again."""
    before = process_of(vm.engine, "seb")
    kill(vm.engine, "seb")
    eventually(lambda: process_of(vm.engine, "seb") not in (0, before), what="a new one")
    eventually(vm.answers, what="the first poll", timeout=60)


def test_upgrade(vm: ContainerVm, page: PageBlocks) -> None:
    """A stop is clean, and a new container goes on where the old one was: nothing lost or twice."""
    script = page.take("Upgrade")
    stop, rest = script.split("\n", 1)
    vm.engine.run(stop)
    assert vm.state("ExitCode") == "0"
    vm.engine.run(rest)
    eventually(vm.answers, what="the first poll", timeout=60)
    count = len(records(vm.received))
    eventually(lambda: len(records(vm.received)) > count, what="more records", timeout=90)
    came = records(vm.received)
    numbers = [int(each["sequence"]) for each in came]
    assert len({each["stream"] for each in came}) == 1
    assert sorted(set(numbers)) == numbers


def test_wrong_setting(vm: ContainerVm) -> None:
    """A wrong setting ends with 78 and names it."""
    result = vm.engine.outcome("docker run --rm --network host --env SEB_POLL_INTERVAL=often seb")
    assert (result.returncode, "SEB_POLL_INTERVAL" in result.stderr) == (78, True)


def test_remove(vm: ContainerVm, page: PageBlocks) -> None:
    """The page's removal leaves no container, no volume and no image of ours."""
    vm.engine.run(page.take("Remove"))
    left = "docker ps -aq; docker volume ls -q; docker images -q seb"
    assert vm.engine.run(left).split() == []


def test_everything_was_executed(page: PageBlocks) -> None:
    """No command of the page is left out."""
    assert page.left() == []
