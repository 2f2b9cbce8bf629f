"""What runs on Windows only, run here with the platform faked: none of it may be broken unseen."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path, PureWindowsPath

import pytest
from support.imds.windows_registry import Registry

from bridge import system
from bridge.api import control
from bridge.api.control import ControlServer
from bridge.api.server import bound
from bridge.config.load import load
from bridge.imds import discovery
from sinks.base import read_secret
from sinks.kinds.file import _sync_directory
from sinks.kinds.webhook.template import compile_template

BOM = b"\xef\xbb\xbf"
"""What editors on Windows put in front of UTF-8."""
MEMORY = r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters"
INTERFACES = r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces"


Register = Callable[[dict[str, dict[str, object]]], None]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Makes this a Windows with such a registry."""

    def register(values: dict[str, dict[str, object]]) -> None:
        monkeypatch.setitem(sys.modules, "winreg", Registry(values))
        monkeypatch.setattr(sys, "platform", "win32")

    return register


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `bridge.system` take this for Windows."""
    monkeypatch.setattr(system, "is_windows", lambda: True)


def test_the_boot_id_is_the_count_of_boots(registry: Register) -> None:
    """Another number is another boot."""
    registry({MEMORY: {"BootId": 17}})
    assert system.boot_id() == "boot-17"


def test_a_windows_that_does_not_tell(registry: Register) -> None:
    """No such value, or no such key: unknown, and no error."""
    registry({MEMORY: {"EnablePrefetcher": 3}})
    assert system.boot_id() is None
    registry({})
    assert system.boot_id() is None


def test_the_dhcp_lease_is_in_the_registry(registry: Register) -> None:
    """An interface without a lease is passed over; option 245 of the other one is found."""
    lease = bytes.fromhex("f500000000000000 0400000000000000 ffffff7f a83f8110".replace(" ", ""))
    registry(
        {
            f"{INTERFACES}\\{{one}}": {"EnableDHCP": 0},
            f"{INTERFACES}\\{{two}}": {"DhcpInterfaceOptions": lease},
        }
    )
    assert discovery.endpoints() == ["http://168.63.129.16"]


def test_a_windows_without_leases(registry: Register) -> None:
    """No interface at all."""
    registry({})
    assert discovery.endpoints() == []


@pytest.mark.usefixtures("windows")
def test_the_state_is_below_programdata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where services of every account have theirs, also where the variable is missing."""
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.delenv("PROGRAMDATA", raising=False)
    assert str(system.default_state_dir()).startswith(r"C:\ProgramData")
    assert system.default_state_dir().name == "scheduled-events-bridge"


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize(("path", "volatile"), [("D:\\seb", True), ("C:\\ProgramData\\x", False)])
def test_the_temporary_disk(path: str, volatile: bool) -> None:
    """Azure gives it the letter D."""
    assert system.is_volatile(PureWindowsPath(path)) is volatile


@pytest.mark.usefixtures("windows")
def test_nothing_is_asked_of_modes_and_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows knows no such modes, and cannot open a directory to sync it."""

    def refuse(*_: object) -> None:
        raise AssertionError("this does not work on Windows")

    monkeypatch.setattr(Path, "chmod", refuse)
    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.delattr(os, "O_DIRECTORY")
    system.make_private(tmp_path)
    system.sync_directory(tmp_path)
    _sync_directory(tmp_path)


@pytest.mark.usefixtures("windows")
def test_commands_find_the_bridge_by_a_pipe(tmp_path: Path) -> None:
    """The system chooses its name, and the state directory holds it."""
    assert system.control_address(tmp_path) is None
    server = ControlServer(tmp_path, lambda request: {"heard": request["ask"]})
    try:
        assert control.send(tmp_path, {"ask": "outbox.list"}) == {"heard": "outbox.list"}
    finally:
        server.close()


def test_ctrl_break_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what service wrappers send where Ctrl-C does not reach."""
    names = ("SIGTERM", "SIGINT", "SIGUSR2")
    kept = [(name, signal.getsignal(getattr(signal, name))) for name in names]
    monkeypatch.setattr(signal, "SIGBREAK", signal.SIGUSR2, raising=False)
    called = threading.Event()
    try:
        system.on_stop_signal(called.set)
        signal.raise_signal(signal.SIGUSR2)
    finally:
        for name, handler in kept:
            signal.signal(getattr(signal, name), handler)
    assert called.is_set()


def test_there_is_no_service_manager_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows' Python has no such sockets: nothing is said, whatever the environment holds."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.delattr(socket, "AF_UNIX")
    system.notify("READY=1")


def test_nobody_else_gets_the_servers_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, SO_REUSEADDR would share it with whoever asks, and is left alone."""
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    with bound("127.0.0.1", 0) as listener:
        options = (socket.__dict__["SO_EXCLUSIVEADDRUSE"], socket.SO_REUSEADDR)
        found = [listener.getsockopt(socket.SOL_SOCKET, each) for each in options]
    assert found == [1, 0]


# Files as editors on Windows write them.


def test_settings_from_notepad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte order mark and Windows' line ends in .env, TOML and secrets change nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secrets").mkdir()
    (tmp_path / ".env").write_bytes(BOM + b"SEB_SITE=weu\r\nSEB_SCOPE=self\r\n")
    (tmp_path / "seb.toml").write_bytes(BOM + b"poll_interval = 7\r\n[sink.file]\r\npath='x'\r\n")
    (tmp_path / "secrets" / "SEB_NODE__POD").write_bytes(BOM + b"pod-1\r\n")
    config = load(environ={"SEB_CONFIG": "seb.toml", "SEB_SECRETS_DIR": "secrets"})
    settings = config.settings
    found = (settings.site, settings.scope, settings.poll_interval, settings.node.pod)
    assert found == ("weu", "self", 7.0, "pod-1")


def test_a_secret_from_notepad(tmp_path: Path) -> None:
    """The mark is no part of a password."""
    file = tmp_path / "password.txt"
    file.write_bytes(BOM + "pässword\r\n".encode())
    assert read_secret(None, file) == "pässword"


def test_a_template_from_notepad(tmp_path: Path) -> None:
    """A body that began with the mark would be no JSON."""
    file = tmp_path / "slack.json.j2"
    file.write_bytes(BOM + b'{"text": "x"}')
    assert compile_template(f"file:{file}").render() == '{"text": "x"}'
