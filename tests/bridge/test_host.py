"""What differs between operating systems."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from bridge import host

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="not on Windows")


def test_the_boot_id_stays_until_the_next_boot() -> None:
    """Asked twice, it is the same; where there is none, that is told."""
    assert host.boot_id() == host.boot_id()


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A container without /proc, or an empty file: unknown, not an error."""
    for place in (tmp_path / "none", tmp_path / "empty"):
        (tmp_path / "empty").touch()
        monkeypatch.setattr(host, "_LINUX_BOOT_ID", place)
        monkeypatch.setattr(host, "is_windows", lambda: False)
        assert host.boot_id() is None


def test_systemd_says_where_the_state_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of its directories."""
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two")
    assert host.default_state_dir() == Path("/var/lib/one")


def test_the_default_is_on_the_os_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below /var/lib where that can be written, else in the user's own place."""
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr(host, "is_windows", lambda: False)
    monkeypatch.setattr(os, "access", lambda place, mode: True)
    assert host.default_state_dir() == Path("/var/lib/scheduled-events-bridge")
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    assert Path("/var/lib") not in host.default_state_dir().parents


def test_windows_has_its_own_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """ProgramData, for every user's services."""
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr(host, "is_windows", lambda: True)
    monkeypatch.setenv("PROGRAMDATA", str(tmp_path))
    assert host.default_state_dir() == tmp_path / "scheduled-events-bridge"


@posix_only
def test_private_is_for_the_owner(tmp_path: Path) -> None:
    """Directories can be entered, files cannot be run."""
    file = tmp_path / "file"
    file.touch(mode=0o666)
    host.make_private(file)
    host.make_private(tmp_path)
    assert [mode & 0o777 for mode in (file.stat().st_mode, tmp_path.stat().st_mode)] == [
        0o600,
        0o700,
    ]


def test_a_directory_can_be_synced(tmp_path: Path) -> None:
    """It is harmless on every system."""
    host.sync_directory(tmp_path)


@posix_only
def test_the_sockets_address_fits(tmp_path: Path) -> None:
    """A long path gets an address elsewhere, and what lies in the way is removed."""
    (tmp_path / "control.sock").touch()
    assert host.control_address(tmp_path) == str(tmp_path / "control.sock")
    assert not (tmp_path / "control.sock").exists()
    assert host.control_address(tmp_path / ("x" * 120)) is None


@posix_only
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_stops(name: str) -> None:
    """Both kinds of stop call what is to be called, and nothing else happens."""
    kept = [(each, signal.getsignal(each)) for each in (signal.SIGTERM, signal.SIGINT)]
    called: list[str] = []
    try:
        host.on_stop_signal(lambda: called.append(name))
        signal.raise_signal(getattr(signal, name))
    finally:
        for each, handler in kept:
            signal.signal(each, handler)
    assert called == [name]


@posix_only
def test_memory_is_no_place_for_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a redeploy takes away is recognised by its mount."""
    mounts = "/dev/sda1 / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n/dev/sdb1 /mnt ext4 rw 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda self, **how: mounts)
    found = [host.is_volatile(Path(each)) for each in ("/opt/x", "/run/seb", "/mnt/seb", "/mntx")]
    assert found == [False, True, True, False]
