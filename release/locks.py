"""The pinned dependencies: what a lock names for one platform, and their wheels on this disk."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.markers import Marker, default_environment

_PIN: Final = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)"
    r"(?: *; *(?P<marker>[^\\\n]+?))? *\\\n"
    r"(?P<hashes>(?: +--hash=\S+(?: *\\)?\n?)+)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What wheels are looked for: an operating system, a processor, a version of Python."""

    system: str
    """`linux` or `windows`, as in the names of the artefacts."""
    machine: str
    """`x86_64` or `aarch64`."""
    python: str
    """Such as 3.13."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Platform tags of wheels that run there, best first; glibc 2.28 at most."""
        if self.system == "windows":
            return ("win_amd64",)
        return tuple(f"manylinux{glibc}_{self.machine}" for glibc in ("_2_28", "_2_17", "2014"))

    @property
    def environment(self) -> dict[str, str]:
        """What environment markers are compared with."""
        windows = self.system == "windows"
        return {
            **{name: str(value) for name, value in default_environment().items()},
            "sys_platform": "win32" if windows else "linux",
            "os_name": "nt" if windows else "posix",
            "platform_system": "Windows" if windows else "Linux",
            "platform_machine": "AMD64" if windows else self.machine,
            "python_version": self.python,
            "python_full_version": f"{self.python}.0",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One distribution of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]


def pins(lock: Path, platform: Platform) -> list[Pin]:
    """What the lock asks for on that platform."""
    return [
        Pin(
            name=found["name"],
            version=found["version"],
            hashes=tuple(re.findall(r"--hash=(\S+)", found["hashes"])),
        )
        for found in _PIN.finditer(lock.read_text(encoding="utf-8"))
        if not found["marker"] or Marker(found["marker"]).evaluate(platform.environment)
    ]


def wheels(lock: Path, platform: Platform, folder: Path) -> list[Path]:
    """The wheels of the lock in `folder`: from what is there, and else from the package index.

    pip checks each against the lock's hashes, whichever way it came.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = pins(lock, platform)
    asked = folder / f"asked-{platform.system}-{platform.machine}-{platform.python}.txt"
    lines = [
        " ".join([f"{pin.name}=={pin.version}", *(f"--hash={each}" for each in pin.hashes)])
        for pin in names
    ]
    asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
    target = folder / f"{platform.system}-{platform.machine}-{platform.python}"
    download = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--dest", str(target), "--require-hashes", "--no-deps", "--only-binary=:all:"),
        *("--python-version", platform.python, "--implementation", "cp"),
        *(f"--platform={tag}" for tag in platform.tags),
        *("--requirement", str(asked)),
    ]
    offline = [*download, "--no-index", "--find-links", str(target)]
    if subprocess.run(offline, check=False, stderr=subprocess.DEVNULL).returncode:
        subprocess.run(download, check=True)
    return [_wheel_of(pin, target) for pin in names]


def _wheel_of(pin: Pin, folder: Path) -> Path:
    """The file of a pin; what an older lock left beside it is not taken."""
    stem = re.sub(r"[-_.]+", "_", pin.name).lower()
    for path in sorted(folder.glob("*.whl")):
        name, version, _ = path.name.split("-", 2)
        if re.sub(r"[-_.]+", "_", name).lower() == stem and version == pin.version:
            return path
    raise FileNotFoundError(f"{folder} has no wheel of {pin.name} {pin.version}")
