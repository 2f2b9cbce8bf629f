"""Small and read-only disks, mounted for one test; only root of a Linux machine can."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(target: Path, *, megabytes: int) -> Iterator[Path]:
    """A disk of that size, as long as the block lasts. Skips the test where that cannot be."""
    target.mkdir()
    _mount(target, "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs")
    try:
        yield target
    finally:
        _unmount(target)


@contextmanager
def read_only_view(target: Path, of: Path) -> Iterator[Path]:
    """A directory that cannot be written, not even by root. Skips the test as above."""
    target.mkdir()
    _mount(target, "-o", "bind", str(of))
    try:
        _mount(target, "-o", "remount,bind,ro")
        yield target
    finally:
        _unmount(target)


def fill(directory: Path, *, leave: int = 0) -> Path:
    """Fill the disk but for so many bytes; the file that does it."""
    filler = directory / "filler"
    with filler.open("ab", buffering=0) as file:
        while (free := shutil.disk_usage(directory).free - leave) > 0:
            try:
                file.write(bytes(min(free, 1 << 16)))
            except OSError:
                break
    return filler


def _mount(target: Path, *how: str) -> None:
    if not sys.platform.startswith("linux") or shutil.which("mount") is None:
        pytest.skip("only Linux has these mounts")
    done = subprocess.run(["mount", *how, str(target)], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("only root can mount a disk")


def _unmount(target: Path) -> None:
    # Lazily: a process that a failing test leaves behind must not keep it.
    subprocess.run(["umount", "-l", str(target)], check=True)
