"""The control channel: only commands of this machine are answered, and no caller can block the
others.
"""

import errno
import json
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from support.eventually import eventually
from support.threads import no_new_threads

from bridge.api.control import FILE_NAME, MAX_CALLERS, ControlError, ControlServer, send
from sinks.shared.errors import NotPermittedError, TryLaterError


def handler(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """A handler that succeeds or fails as the request says."""
    if request.get("ask") == "refuse":
        raise ControlError("not this")
    if request.get("ask") == "bug":
        raise ZeroDivisionError
    return {"asked": request.get("ask")}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    """A server with short time limits."""
    made = ControlServer(tmp_path, handler, patience=0.3)
    yield made
    made.close()


def address_of(directory: Path) -> str:
    """Return the address of the server."""
    address: str = json.loads((directory / FILE_NAME).read_text(encoding="utf-8"))["address"]
    return address


@pytest.mark.usefixtures("server")
def test_a_refusal_comes_in_the_bridges_words(tmp_path: Path) -> None:
    """A refusal has the bridge's own message, and the next request is answered."""
    with pytest.raises(ControlError, match="not this"):
        send(tmp_path, {"ask": "refuse"})
    with pytest.raises(ControlError, match="ZeroDivisionError"):
        send(tmp_path, {"ask": "bug"})
    assert send(tmp_path, {"ask": "on"}) == {"asked": "on"}


@pytest.mark.parametrize("left", [None, "", "{", "[]", "{}", '{"address": 7, "key": "00"}'])
def test_without_a_valid_file_no_bridge_runs(tmp_path: Path, left: str | None) -> None:
    """A missing file, or one that a kill or a person left, means that no bridge runs."""
    if left is not None:
        (tmp_path / FILE_NAME).write_text(left, encoding="utf-8")
    assert send(tmp_path, {"ask": "a"}) is None


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe leaves no file behind")
def test_the_socket_of_a_killed_bridge_is_replaced(tmp_path: Path) -> None:
    """The file and the socket of a killed bridge are ignored, and a new server replaces them."""
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "control.sock"))
    left.close()
    known = {"address": str(tmp_path / "control.sock"), "key": "00"}
    (tmp_path / FILE_NAME).write_text(json.dumps(known), encoding="utf-8")
    assert send(tmp_path, {"ask": "a"}) is None
    server = ControlServer(tmp_path, handler)
    assert send(tmp_path, {"ask": "b"}) == {"asked": "b"}
    server.close()


def test_a_closed_server_leaves_nothing_behind(tmp_path: Path) -> None:
    """A closed server leaves neither file nor thread, and may be closed twice."""
    before = set(threading.enumerate())
    server = ControlServer(tmp_path, handler)
    assert send(tmp_path, {"ask": "a"})
    server.close()
    server.close()
    assert send(tmp_path, {"ask": "a"}) is None
    # The thread of a client, and the timers that were to cut it, end by themselves: soon, not yet.
    left = set(threading.enumerate()) - before
    for each in left:
        each.join(10)
    assert [each.name for each in left if each.is_alive()] == []
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.usefixtures("server")
def test_a_wrong_key_is_refused(tmp_path: Path) -> None:
    """A caller with the address and without the key gets no answer."""
    known = {"address": address_of(tmp_path), "key": "00" * 32}
    other = tmp_path / "other"
    other.mkdir()
    (other / FILE_NAME).write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(ControlError, match="try again"):
        send(other, {"ask": "a"})
    assert send(tmp_path, {"ask": "a"}) == {"asked": "a"}


def test_silent_callers_block_no_other(tmp_path: Path) -> None:
    """Callers that send nothing, or half a message, do not block others, and are disconnected in
    the end.
    """
    server = ControlServer(tmp_path, handler, patience=0.5)
    silent = [Client(address_of(tmp_path)) for _ in range(MAX_CALLERS - 1)]
    if sys.platform != "win32":  # there, a message of a pipe is whole or not there
        with socket.socket(fileno=silent[0].fileno()) as half:
            half.send(b"\0")
            half.detach()
    assert send(tmp_path, {"ask": "a"}) == {"asked": "a"}
    for each in silent:
        assert each.recv_bytes()  # the challenge
        with pytest.raises((EOFError, OSError)):
            each.recv_bytes()
        each.close()
    server.close()


def test_a_request_that_takes_long_blocks_no_other(tmp_path: Path) -> None:
    """A command is answered while another one waits for IMDS."""
    begun, ended = threading.Event(), threading.Event()

    def slow(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request.get("ask") == "approve":
            begun.set()
            assert ended.wait(10)
        return handler(request)

    server = ControlServer(tmp_path, slow)
    approving = threading.Thread(target=send, args=(tmp_path, {"ask": "approve"}))
    approving.start()
    assert begun.wait(10)
    assert send(tmp_path, {"ask": "a"}, patience=5) == {"asked": "a"}
    ended.set()
    approving.join(10)
    server.close()


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("expected", [b"", b"no JSON", b"[1]", b"\xff" * 100])
def test_garbage_is_turned_away(tmp_path: Path, expected: bytes) -> None:
    """Bytes that are no valid greeting end that connection only."""
    with Client(address_of(tmp_path)) as caller:
        caller.recv_bytes()
        caller.send_bytes(expected)
        with pytest.raises((EOFError, OSError)):  # noqa: PT012  # what comes before it is read
            while True:
                caller.recv_bytes()
    assert send(tmp_path, {"ask": "a"}) == {"asked": "a"}


def test_a_bridge_that_does_not_answer_is_not_waited_for_forever(tmp_path: Path) -> None:
    """If the bridge does not answer, the command says to try again later, with its exit code."""
    release = threading.Event()

    def slow(request: Mapping[str, Any]) -> Mapping[str, Any]:
        release.wait(10)
        return {}

    server = ControlServer(tmp_path, slow)
    with pytest.raises(TryLaterError, match="try again"):
        send(tmp_path, {"ask": "a"}, patience=0.2)
    release.set()
    server.close()


def test_without_a_new_thread_callers_are_told_to_try_again(tmp_path: Path) -> None:
    """While no thread can be started, callers are disconnected. After more of them than are served
    at once, the next one is answered as soon as threads can be started.
    """
    server = ControlServer(tmp_path, handler, patience=5)
    address = address_of(tmp_path)
    with no_new_threads():
        for _ in range(MAX_CALLERS + 1):
            with Client(address) as caller, pytest.raises((EOFError, OSError)):
                caller.recv_bytes()
    assert send(tmp_path, {"ask": "a"}, patience=5) == {"asked": "a"}
    server.close()


def test_a_caller_that_cannot_be_cut_is_told_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller whose time cannot be limited, because no thread can be started for that, is not
    served, and nothing is raised into the error output.
    """
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    server = ControlServer(tmp_path, handler, patience=5)
    address = address_of(tmp_path)
    with patch.object(threading.Timer, "start", side_effect=RuntimeError):
        with Client(address) as caller, pytest.raises((EOFError, OSError)):
            caller.recv_bytes()
        with pytest.raises(TryLaterError):
            send(tmp_path, {"ask": "a"}, patience=5)
    assert send(tmp_path, {"ask": "a"}, patience=5) == {"asked": "a"}
    assert raised == []
    server.close()


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe has no backlog")
def test_a_server_with_callers_that_wait_can_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose thread takes nobody in, with as many callers waiting as the system holds for
    it, is closed within its patience.
    """
    accepting, ended = threading.Event(), threading.Event()

    def stuck(_: Listener) -> Connection:
        accepting.set()
        ended.wait(20)
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(Listener, "accept", stuck)
    server = ControlServer(tmp_path, handler, patience=0.1)
    assert accepting.wait(10)
    waiting = []
    with suppress(BlockingIOError):
        for _ in range(1000):
            caller = socket.socket(socket.AF_UNIX)
            waiting.append(caller)
            caller.setblocking(False)
            caller.connect(address_of(tmp_path))
    closing = threading.Thread(target=server.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    ended.set()
    for caller in waiting:
        caller.close()


def test_another_user_gets_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that this user may not read is an error with a remedy, and does not mean that no
    bridge runs.
    """

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(NotPermittedError, match="run this as the user"):
        send(tmp_path, {"ask": "a"})


def test_a_full_disk_only_puts_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the bridge starts without the control channel, which works once there is
    room.
    """
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        server = ControlServer(tmp_path, handler, again=0.01)
        assert send(tmp_path, {"ask": "a"}) is None
    eventually(lambda: send(tmp_path, {"ask": "a"}) == {"asked": "a"}, what="an answer")
    server.close()
    assert not (tmp_path / FILE_NAME).exists()


def test_a_file_that_cannot_be_removed_does_not_keep_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose file the disk does not let go of ends all the same, and the file leads
    nowhere.
    """
    server = ControlServer(tmp_path, handler)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", read_only)
        server.close()
    assert (tmp_path / FILE_NAME).exists()
    assert send(tmp_path, {"ask": "a"}) is None


def test_a_server_that_never_began_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never began to listen can be closed without waiting."""
    monkeypatch.setattr(Path, "write_text", full)
    ControlServer(tmp_path, handler).close()
    assert not (tmp_path / FILE_NAME).exists()


def read_only(path: Path, *, missing_ok: bool = False) -> None:
    """Raise the error of a disk that may not be written to."""
    raise OSError(errno.EROFS, "read-only file system")


def full(path: Path, text: str, **how: object) -> int:
    """Raise the error of a disk without room."""
    raise OSError(errno.ENOSPC, "no space left on device")
