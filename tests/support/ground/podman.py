"""A container engine for docs/docker.md: podman, called `docker`, in a network of its own.

The network is a namespace with loopback alone, so that nothing reaches a metadata service and no
port of this machine is used; only a build has the outer network. Images and containers are in a
store of the ground's own. Root only.

The base image is made from Debian's packages, under the name that the Dockerfile asks for.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from support.ground.cache import ROOT, cache, fetch, say
from support.ground.nspawn import apt_sources

_TOOLS: Final = {
    **{name: name for name in ("podman", "buildah", "crun", "mmdebstrap")},
    "catatonit": "catatonit",
}
_PACKAGES: Final = "python3,python3-venv,python3-pip,python3-pip-whl,ca-certificates"
_RELEASE: Final = "trixie"
"""Debian 13, whose Python is the 3.13 that the Dockerfile asks for."""
_BASE: Final = "localhost/python:3.13-slim"
_CA: Final = "/etc/ssl/certs/ca-certificates.crt"


def missing() -> str:
    """Why there can be no container here, in a sentence; empty if there can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "needs root on Linux"
    names = [package for tool, package in _TOOLS.items() if shutil.which(tool) is None]
    return f"needs the packages {' '.join(names)} (make ground-tools)" if names else ""


class Engine:
    """`docker` as the page calls it; a context manager that leaves no container behind.

    `trusted` is a bundle of authorities that containers trust, `hosts` are names for loopback.
    """

    def __init__(self, home: Path, *, trusted: Path, hosts: Sequence[str]) -> None:
        self.home = home
        self._store = cache("container") / "store"
        self._trusted = trusted
        self._hosts = hosts
        self._network: subprocess.Popen[bytes] | None = None
        self._programs: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._network = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "ip link set lo up && echo up && exec sleep 3600"],
            stdout=subprocess.PIPE,
        )
        assert self._network.stdout
        assert self._network.stdout.readline() == b"up\n"
        self._network.stdout.close()
        (self.home / "bin").mkdir()
        # The oldest kernels' mixture of cgroups stops crun, and a nested machine may not be
        # allowed to raise limits: neither is about the image.
        (self.home / "containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]\n'
        )
        (self.home / "pip.conf").write_text(f"[global]\ncert = {_CA}\n")
        self._write_docker()
        self._import_base()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in self._programs:
            each.terminate()
            each.wait(10)
        self.outcome("docker rm --force --all; docker volume rm --force seb")
        if self._network is not None:
            self._network.kill()
            self._network.wait(10)

    def run(self, script: str, *, timeout: float = 240.0) -> str:
        """Run a script with `docker` in it; its standard output. Raises `AssertionError`."""
        done = self.outcome(script, timeout=timeout)
        words = f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{words}"
        return done.stdout

    def outcome(
        self, script: str, *, where: Path | None = None, timeout: float = 240.0
    ) -> subprocess.CompletedProcess[str]:
        """As `run`, with its exit code and what it wrote."""
        return subprocess.run(
            ["bash", "-euc", script],
            cwd=where or self.home,
            env={**os.environ, "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """A program of the VM itself, in the network of the containers, until the end."""
        with (self.home / "programs.log").open("ab") as log:
            made = subprocess.Popen([*self._enter(), *words], stdout=log, stderr=log)
        self._programs.append(made)
        return made

    def _enter(self) -> list[str]:
        assert self._network is not None
        return ["nsenter", "-t", str(self._network.pid), "-n", "--"]

    def _write_docker(self) -> None:
        """The command: podman, with what a VM of the reader's would have by itself."""
        podman = f"podman --root {self._store} --runroot {self._store}-run"
        bare = "umount /sys/fs/cgroup/unified 2>/dev/null"
        inside = " ".join(self._enter())
        hosts = " ".join(f"--add-host {name}:127.0.0.1" for name in self._hosts)
        mounts = f"-v {_CA}:{_CA}:ro -v {self.home}/pip.conf:/etc/pip.conf:ro"
        call = f"exec unshare -m sh -c '{bare}; exec \"$@\"' sh"
        text = f"""\
#!/bin/bash
export CONTAINERS_CONF={self.home}/containers.conf
first=$1; shift
case $first in
build) {call} {podman} build --format docker --network host {mounts} "$@";;
run) {call} {inside} {podman} run --read-only-tmpfs=false {hosts} \\
  -v {self._trusted}:{_CA}:ro "$@";;
*) {call} {inside} {podman} "$first" "$@";;
esac
"""
        command = self.home / "bin" / "docker"
        command.write_text(text)
        command.chmod(0o755)
        sudo = self.home / "bin" / "sudo"
        sudo.write_text('#!/bin/sh\nexec "$@"\n')
        sudo.chmod(0o755)

    def _import_base(self) -> None:
        archive = cache("container") / "base.tar"
        if not archive.exists():
            say("container: a base image from the distribution's packages (a minute)")
            sources = archive.with_name(f"{_RELEASE}.sources")
            texts = [each.read_text() for each in apt_sources()]
            sources.write_text("\n".join(texts).replace("bookworm", _RELEASE))
            made = archive.with_suffix(".new.tar")
            link = "--customize-hook=ln -s /usr/bin/python3 $1/usr/local/bin/python"
            fetch(
                *("mmdebstrap", "--quiet", "--variant=apt", f"--include={_PACKAGES}", link),
                *(_RELEASE, str(made), str(sources)),
            )
            made.rename(archive)
        if self.outcome(f"docker image exists {_BASE}").returncode:
            command = shlex.quote('CMD ["python"]')
            self.run(f"docker import -c {command} {archive} {_BASE}")


def process_of(engine: Engine, container: str) -> int:
    """The id, on this machine, of a container's first process."""
    return int(engine.run(f"docker inspect --format '{{{{.State.Pid}}}}' {container}"))


def kill(engine: Engine, container: str) -> None:
    """End a container's processes without a word."""
    os.kill(process_of(engine, container), signal.SIGKILL)


__all__ = ["ROOT", "Engine", "kill", "missing", "process_of"]
