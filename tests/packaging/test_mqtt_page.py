"""docs/mqtt.md for Mosquitto, executed, with every path in a directory of the test."""

import os
import pty
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.eventually import eventually
from support.ground.doc_page import PageBlocks, blocks
from support.mqtt.mosquitto import executable
from support.ports import free_port
from support.process.bridge import clean_environment
from support.sinks.throwaway_ca import ThrowawayCa

from bridge.simulator.simulator import Simulator

PAGE = "docs/mqtt.md"
VM = "3f6a1c1e-8d55-4c0b-9a3e-5b1f0c7d2e90"
PASSWORD = "a password of the test"
TOOLS = ("mosquitto_passwd", "mosquitto_sub")
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Mosquitto is run on Linux"),
    pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)}"),
]


class PageMachine:
    """The machine of the page, below one directory: its paths, its broker's name and port."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        for name in ("etc/mosquitto/conf.d", "etc/mosquitto/tls", "etc/seb", "run/secrets", "bin"):
            (home / name).mkdir(parents=True)
        # What a test must not do to this machine: packages, owners, services.
        for name in ("apt-get", "chown", "systemctl"):
            self._command(name, "exit 0")
        self._command("sudo", 'exec "$@"')
        self._command("seb", f'exec {sys.executable} -m bridge "$@"')

    def _command(self, name: str, body: str) -> None:
        path = self.home / "bin" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def moved(self, text: str) -> str:
        """A text of the page, about this directory."""
        text = re.sub(r"(?<![\w/])/(etc|run)/", rf"{self.home}/\1/", text)
        text = text.replace("listener 8883", "listener 8883 127.0.0.1")
        return text.replace("broker.example", "127.0.0.1").replace("8883", str(self.port))

    def environment(self, **more: str) -> dict[str, str]:
        """Of the page's shell."""
        path = f"{self.home / 'bin'}:{os.environ['PATH']}"
        return {**clean_environment(self.home, more), "PATH": path}

    def type(self, script: str) -> None:
        """Run a script at a terminal, where a person types the password each time it is asked."""
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            ["sh", "-euc", self.moved(script)],
            env=self.environment(),
            cwd=self.home,
            stdin=follower,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        said = b""
        while chunk := read(leader):
            said += chunk
            if said.endswith(b"assword: "):
                os.write(leader, f"{PASSWORD}\n".encode())
        os.close(leader)
        assert process.wait(30) == 0, said


def read(descriptor: int) -> bytes:
    """What a terminal says next; nothing once its last program has ended."""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""


def listens(port: int) -> bool:
    """Whether a connection to a port of loopback is taken."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def run(script: str, env: dict[str, str], home: Path) -> int:
    """The exit code of a script."""
    return subprocess.run(["sh", "-euc", script], env=env, cwd=home, check=False).returncode


def test_the_page_from_the_first_command_to_a_record(
    tmp_path: Path, imds_simulator: Simulator
) -> None:
    """Users keep their passwords when one is added, the VM may send, and the subscriber gets it."""
    places, page = PageMachine(tmp_path), PageBlocks(PAGE)
    ca = ThrowawayCa(tmp_path / "etc/mosquitto/tls")
    ca.server()
    shutil.copy(ca.cert, tmp_path / "etc/seb/ca.pem")
    shutil.copy(ca.cert, tmp_path / "ca.pem")
    places.type(page.take("Mosquitto"))
    users = (tmp_path / "etc/mosquitto/passwd").read_text().splitlines()
    assert [line.split(":")[0] for line in users] == [VM, "control"]
    (acl,) = [each.text for each in blocks("docs/control-plane.md") if "pattern write" in each.text]
    (tmp_path / "etc/mosquitto/seb.acl").write_text(acl)
    config, variables = (each.text for each in blocks(PAGE, "ini")[:2])
    (tmp_path / "seb.conf").write_text(
        places.moved(config) + f"user root\npersistence_location {tmp_path}/\n"
    )
    places.type(page.take("Mosquitto"))
    (tmp_path / "run/secrets/mqtt").write_text(PASSWORD)
    lines = [each for each in places.moved(variables).splitlines() if not each.startswith("#")]
    settings = dict(each.split("=", 1) for each in lines)
    settings["SEB_SINK__MQTT__PORT"] = str(places.port)  # the page's is TLS' own
    broker = subprocess.Popen([executable(), "-c", str(tmp_path / "seb.conf")])
    eventually(lambda: listens(places.port), what="the broker")
    subscriber = subprocess.Popen(
        ["sh", "-euc", f"cd {tmp_path}; exec {places.moved(page.take('A subscriber')).strip()} -v"],
        env=places.environment(PASSWORD=PASSWORD),
        stdout=subprocess.PIPE,
    )
    try:
        script = page.take("Mosquitto")
        env = places.environment(SEB_IMDS__URL=imds_simulator.url, **settings)
        eventually(lambda: run(script, env, tmp_path) == 0, what="a test record that arrives")
        assert subscriber.stdout is not None
        first = subscriber.stdout.readline()
        assert first.startswith(f"seb/v1/default/vm/{VM}/".encode())
    finally:
        for each in (subscriber, broker):
            each.terminate()
            each.wait(10)
        assert subscriber.stdout is not None
        subscriber.stdout.close()
    assert page.left() == []
