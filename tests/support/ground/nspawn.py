"""A machine with systemd as its first process, in systemd-nspawn. Its network is loopback alone.

Root only. Its file system is made once from the distribution's packages and kept in a cache; each
`Machine` gets a fresh copy. `install` is the one call with the outer network, for pip.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from support.ground.cache import ROOT, cache, fetch, say

HOME: Final = "/root"
"""Of root, in the machine."""
_TOOLS: Final = {"mmdebstrap": "mmdebstrap", "systemd-nspawn": "systemd-container"}
_PACKAGES: Final = (
    *("systemd", "systemd-sysv", "dbus", "polkitd", "libnss-systemd", "sudo", "procps"),
    *("iproute2", "python3", "python3-venv", "ca-certificates", "curl", "jq", "make"),
    *(
        "mosquitto",
        "mosquitto-clients",
        "openssl",
        "rpm",
        "dnf",
        "python3-apt",
        "nginx-light",
        "postgresql",
    ),
)
_NOT_AT_BOOT: Final = ("nginx", "postgresql")
"""Services that a test starts where it needs them."""
_RELEASE: Final = "bookworm"
_OTHER_NAMES: Final = {"bullseye": {"polkitd": "policykit-1"}}
"""What packages are called in another release."""
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SOURCE: Final = "/usr/local/src/seb"
"""Where the checkout is in the machine."""


def missing() -> str:
    """Why there can be no such machine here, in a sentence; empty if there can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "needs root on Linux"
    names = [package for tool, package in _TOOLS.items() if shutil.which(tool) is None]
    return f"needs the packages {' '.join(names)} (make ground-tools)" if names else ""


class Machine:
    """One machine, from `up` to `down`; a context manager that leaves nothing behind."""

    def __init__(self, release: str = _RELEASE) -> None:
        """`release` is the code name of a Debian."""
        self.home = cache("systemd")
        self._release = release
        # More than one may be up in one run: each has a directory and a name of its own.
        self.root = Path(tempfile.mkdtemp(prefix=f"root-{os.getpid()}-", dir=self.home))
        self.root.chmod(0o755)
        self._screen = self.root.with_suffix(".console")
        self._outer: subprocess.Popen[bytes] | None = None
        self._first: int = 0

    def __enter__(self) -> Self:
        archive = self._archive()
        subprocess.run(["tar", "-C", str(self.root), "-xf", str(archive)], check=True)
        self._trust_as_outside()
        (self.root / "etc" / "hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
        # The power of this machine does not fail: a package of thousands of files is there sooner.
        (self.root / "etc" / "dpkg" / "dpkg.cfg.d" / "ground").write_text("force-unsafe-io\n")
        self._copy_checkout()
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()
        shutil.rmtree(self.root, ignore_errors=True)
        self._screen.unlink(missing_ok=True)

    @property
    def first(self) -> int:
        """The id, on the outer machine, of the machine's first process."""
        return self._first

    # On and off.

    def up(self) -> None:
        """Boot, and wait until systemd has started everything."""
        options = ["--private-network", "--register=no", "--keep-unit"]
        options += [f"--machine=seb-{self.root.name.replace('_', '')}"]
        with self._screen.open("wb") as log:
            outer = self._outer = subprocess.Popen(
                ["systemd-nspawn", "--quiet", "-D", str(self.root), "--boot", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")

        def born() -> bool:
            assert outer.poll() is None, f"no machine: {self._screen.read_text(errors='replace')}"
            return bool(children.read_text().split())

        def booted() -> bool:
            # Again each time: the first child may still be a helper of systemd-nspawn's own.
            self._first = int(children.read_text().split()[0])
            state = self.run("systemctl is-system-running", check=False).strip()
            return state in ("running", "degraded")

        _await(born, "the first process of the machine")
        _await(booted, "the end of the boot")

    def down(self) -> None:
        """Shut down in order, as a reboot does; by force if that takes too long."""
        if self._outer is None:
            return
        with suppress(subprocess.SubprocessError):
            self.run("systemctl poweroff", check=False)
        try:
            self._outer.wait(90)
        except subprocess.TimeoutExpired:
            os.killpg(self._outer.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(self._first, signal.SIGKILL)  # the machine outlives its nspawn
            self._outer.wait(10)
        self._outer = None

    def reboot(self) -> None:
        """Down and up again."""
        self.down()
        self.up()

    # What is done in it.

    def run(
        self,
        script: str,
        *,
        check: bool = True,
        network: bool = False,
        timeout: float = 240.0,
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Run a script as root in the checkout; what it wrote on standard output.

        Raises `AssertionError` with its last words where it fails, unless `check` is false.
        """
        done = self.outcome(script, network=network, timeout=timeout, env=env)
        if check:
            assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{_words(done)}"
        return done.stdout

    def outcome(
        self,
        script: str,
        *,
        network: bool = False,
        timeout: float = 240.0,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """As `run`, with its exit code and what it wrote."""
        spaces = ["-m", "-u", "-i", "-p", *([] if network else ["-n"])]
        plain = {"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8", **(env or {})}
        words = [f"{name}={value}" for name, value in plain.items()]
        inside = ["bash", "-c", f"cd {SOURCE} 2>/dev/null; set -e\n{script}"]
        command = ["nsenter", "-t", str(self._first), *spaces, "--", "env", "-i", *words, *inside]
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )

    def look(self, script: str, seconds: float) -> str:
        """What a script writes that has no end: it and all that it started are ended after a time.

        It runs in the checkout, as a person would run it in a terminal.
        """
        unit = f"--property=RuntimeMaxSec={seconds:g} --property=TimeoutStopSec=10"
        words = f"--quiet --pipe --wait --collect {unit} --working-directory={SOURCE}"
        done = self.outcome(f"systemd-run {words} bash -c {shlex.quote(script)} 2>&1")
        return done.stdout

    def type_into_editor(self, script: str, text: str) -> None:
        """Run a script whose `sudoedit` gets this text from the person at the keyboard."""
        self.file("/run/typed").write_text(text)
        self.run(script, env={"SUDO_EDITOR": "cp /run/typed"})

    def file(self, path: str) -> Path:
        """A file of the machine, seen from outside; /run and /tmp are not among them."""
        if path.startswith("/run/"):
            return Path(f"/proc/{self._first}/root{path}")
        return self.root / path.lstrip("/")

    # How it is made.

    def _archive(self) -> Path:
        key = hashlib.sha256(repr((_PACKAGES, _NOT_AT_BOOT)).encode()).hexdigest()[:8]
        archive = self.home / f"root-{self._release}-{key}.tar"
        if not archive.exists():
            say(f"systemd: a file system from {self._release}'s packages (a minute)")
            made = archive.with_suffix(".new.tar")
            names = _OTHER_NAMES.get(self._release, {})
            include = f"--include={','.join(names.get(each, each) for each in _PACKAGES)}"
            sources = self.home / f"{self._release}.sources"
            texts = [each.read_text() for each in apt_sources()]
            sources.write_text("\n".join(texts).replace(_RELEASE, self._release))
            off = f"--customize-hook=chroot $1 systemctl -q disable {' '.join(_NOT_AT_BOOT)}"
            command = ["mmdebstrap", "--quiet", "--variant=apt", include, off]
            fetch(*command, self._release, str(made), str(sources))
            made.rename(archive)
        return archive

    def _trust_as_outside(self) -> None:
        """What the outer machine trusts and asks, so that pip works in here as it does there."""
        for name in ("etc/ssl/certs/ca-certificates.crt", "etc/resolv.conf"):
            target = self.root / name
            target.unlink(missing_ok=True)
            shutil.copy(Path("/") / name, target)

    def _copy_checkout(self) -> None:
        target = self.root / SOURCE.lstrip("/")
        target.mkdir(parents=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        copied = ["tar", "--null", "--ignore-failed-read", "-T", "-", "-cf", "-"]
        packed = subprocess.run(
            copied, cwd=ROOT, input=listed.stdout, capture_output=True, check=True
        )
        unpack = ["tar", "--no-same-owner", "-C", str(target), "-xf", "-"]
        subprocess.run(unpack, input=packed.stdout, check=True)


def apt_sources() -> list[Path]:
    """Where the outer machine's own packages come from."""
    places = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("debian*")]
    return [each for each in places if each.exists() and _RELEASE in each.read_text()]


def _words(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def _await(done: Callable[[], bool], what: str, *, timeout: float = 90.0) -> None:
    deadline = time.monotonic() + timeout
    while True:
        with suppress(OSError, IndexError):
            if done():
                return
        assert time.monotonic() < deadline, f"{what} did not come within {timeout:g} s"
        time.sleep(0.2)
