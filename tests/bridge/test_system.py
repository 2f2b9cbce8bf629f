"""What differs between operating systems."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bridge import system

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="not on Windows")


def test_the_boot_id_stays_until_the_next_boot() -> None:
    """The boot id is the same each time it is read; it is None where there is none."""
    assert system.boot_id() == system.boot_id()


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without /proc, or with an empty file, the boot id is None and no error."""
    for place in (tmp_path / "none", tmp_path / "empty"):
        (tmp_path / "empty").touch()
        monkeypatch.setattr(system, "_LINUX_BOOT_ID", place)
        monkeypatch.setattr(system, "is_windows", lambda: False)
        assert system.boot_id() is None


def test_systemd_says_where_the_state_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state directory is the first one of systemd's list."""
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two")
    assert system.default_state_dir() == Path("/var/lib/one")


def test_the_default_is_on_the_os_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default state directory is below /var/lib if that can be written, and otherwise the
    user's own.
    """
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr(system, "is_windows", lambda: False)
    monkeypatch.setattr(os, "access", lambda place, mode: True)
    assert system.default_state_dir() == Path("/var/lib/scheduled-events-bridge")
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    assert Path("/var/lib") not in system.default_state_dir().parents


@posix_only
def test_private_is_for_the_owner(tmp_path: Path) -> None:
    """Only the owner can enter a private directory, and read or write a private file, which nobody
    can execute.
    """
    file = tmp_path / "file"
    file.touch(mode=0o666)
    system.make_private(file)
    system.make_private(tmp_path)
    assert [mode & 0o777 for mode in (file.stat().st_mode, tmp_path.stat().st_mode)] == [
        0o600,
        0o700,
    ]


def test_a_directory_can_be_synced(tmp_path: Path) -> None:
    """A directory can be synced on every system without an error."""
    system.sync_directory(tmp_path)


@posix_only
def test_the_sockets_address_fits(tmp_path: Path) -> None:
    """For a path that is too long the socket has an address elsewhere, and a file that is in its
    way is removed.
    """
    (tmp_path / "control.sock").touch()
    assert system.control_address(tmp_path) == str(tmp_path / "control.sock")
    assert not (tmp_path / "control.sock").exists()
    assert system.control_address(tmp_path / ("x" * 120)) is None


@posix_only
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_stops(name: str) -> None:
    """Both stop signals call the function once, and nothing else happens."""
    kept = [(each, signal.getsignal(each)) for each in (signal.SIGTERM, signal.SIGINT)]
    called: list[str] = []
    try:
        system.on_stop_signal(lambda: called.append(name))
        signal.raise_signal(getattr(signal, name))
    finally:
        for each, handler in kept:
            signal.signal(each, handler)
    assert called == [name]


@posix_only
def test_memory_is_no_place_for_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that a redeploy takes away is recognised by its mount."""
    mounts = "/dev/sda1 / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n/dev/sdb1 /mnt ext4 rw 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda self, **how: mounts)
    found = [system.is_volatile(Path(each)) for each in ("/opt/x", "/run/seb", "/mnt/seb", "/mntx")]
    assert found == [False, True, True, False]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's end of NOTIFY_SOCKET, bound to a path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "n"))
        listener.settimeout(20)
        yield listener


@posix_only
def test_the_service_manager_is_told(
    manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service manager gets the lines unchanged, in one datagram."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
    system.notify("READY=1\nSTATUS=über alles informiert")
    assert manager.recv(1000).decode() == "READY=1\nSTATUS=über alles informiert"


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux' own")
def test_a_manager_in_the_abstract(monkeypatch: pytest.MonkeyPatch) -> None:
    """An @ in NOTIFY_SOCKET stands for the zero byte of an abstract name."""
    name = f"seb-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        system.notify("WATCHDOG=1")
        assert listener.recv(1000) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "relative"])
def test_where_nobody_listens_nothing_is_said(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a service manager, or with an address of an unknown form, nothing is sent."""
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    system.notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    system.notify("READY=1")


def test_a_manager_that_has_gone_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A socket that is missing, or whose name is too long, raises no error."""
    for address in (tmp_path / "gone", tmp_path / ("x" * 200)):
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        system.notify("WATCHDOG=1")


@posix_only
def test_a_manager_that_does_not_read_holds_nobody_up(
    manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message to a manager whose queue is full is given up."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(BlockingIOError):
        sender.setblocking(False)
        while True:
            sender.sendto(b"x", str(tmp_path / "n"))
    assert not system.notify("WATCHDOG=1")
    assert not system.notify("STOPPING=1", 0.01)
    manager.setblocking(False)
    heard = set()
    with suppress(BlockingIOError):
        while True:
            heard.add(manager.recv(1000))
    assert heard == {b"x"}


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid() + 1)}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_whether_somebody_watches(
    environ: dict[str, str], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog's time counts only if it is meant for this process."""
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert system.watchdog_seconds() == seconds
