"""The packages that `make dist` made, and newer versions of them."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest
from support.ground.cache import ROOT
from support.ground.nspawn import Machine

DIST: Final = Path(os.environ.get("SEB_DIST") or ROOT / "dist")
NAME: Final = "scheduled-events-bridge"
CONSOLE: Final = "scheduled-events-console"
NEWER: Final = "99.0.0"
"""The version of `newer_rpm`."""


def made(pattern: str) -> Path:
    """The newest file in `dist/` of that pattern; skips the test if there is none."""
    if not (found := sorted(DIST.glob(pattern))):
        pytest.skip(f"needs {pattern} in {DIST}; make dist makes it")
    return found[-1]


def left_behind(machine: Machine) -> list[str]:
    """The files and accounts of both packages that are on a machine."""
    return machine.run(r"""
        find / -xdev \( -path /usr/local/src -o -path /proc -o -path /var/tmp \) -prune -o \
          \( -name 'seb*' -o -name 'scheduled-events*' \) -print |
          grep -vE '^(/sys/|/etc/hosts|/var/log/journal)' || :
        getent passwd seb seb-console || :
    """).split()


def newer_deb(package: Path, target: Path, work: Path) -> None:
    """The same package with the next revision as its version."""
    root = work / f"newer-{package.stem}"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(root)], check=True)
    control = root / "DEBIAN" / "control"
    lines = [
        f"{line}+next" if line.startswith("Version:") else line
        for line in control.read_text().splitlines()
    ]
    control.write_text("\n".join(lines) + "\n")
    subprocess.run(["dpkg-deb", "-Znone", "--build", str(root), str(target)], check=True)


def newer_rpm(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bridge's .rpm as version `NEWER`, made of the same program by the same tools."""
    from release import packages  # noqa: PLC0415  # skipped tests need none of it

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    with tarfile.open(made(f"{NAME}-*-linux-x86_64.tar.gz")) as archive:
        archive.extractall(work / "program", filter="tar")
    (folder,) = (work / "program").iterdir()
    out = work / "newer"
    out.mkdir()
    (_, rpm) = packages.make(packages.BRIDGE_PRODUCT, folder, NEWER, work / "recipe", out)
    return rpm
