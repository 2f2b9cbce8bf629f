"""The control channel: only our own commands are heard, and nobody can hold it up."""

import errno
import json
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest
from support.eventually import eventually

from bridge.api.control import FILE_NAME, MAX_CALLERS, ControlError, ControlServer, ask
from sinks.shared.errors import NotPermittedError, TryLaterError


def handler(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answers like a desk would, on good and bad days."""
    if request.get("ask") == "refuse":
        raise ControlError("not this")
    if request.get("ask") == "bug":
        raise ZeroDivisionError
    return {"asked": request.get("ask")}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    """A server that is patient for a short time only."""
    made = ControlServer(tmp_path, handler, patience=0.3)
    yield made
    made.close()


def address_of(directory: Path) -> str:
    """Where the server listens."""
    address: str = json.loads((directory / FILE_NAME).read_text(encoding="utf-8"))["address"]
    return address


@pytest.mark.usefixtures("server")
def test_a_refusal_comes_in_the_bridges_words(tmp_path: Path) -> None:
    """And the next question is answered all the same."""
    with pytest.raises(ControlError, match="not this"):
        ask(tmp_path, {"ask": "refuse"})
    with pytest.raises(ControlError, match="ZeroDivisionError"):
        ask(tmp_path, {"ask": "bug"})
    assert ask(tmp_path, {"ask": "on"}) == {"asked": "on"}


@pytest.mark.parametrize("left", [None, "", "{", "[]", "{}", '{"address": 7, "key": "00"}'])
def test_a_strange_file_means_that_nobody_is_there(tmp_path: Path, left: str | None) -> None:
    """No file means that too; what a kill or a person left behind is not believed."""
    if left is not None:
        (tmp_path / FILE_NAME).write_text(left, encoding="utf-8")
    assert ask(tmp_path, {"ask": "a"}) is None


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe leaves no file behind")
def test_what_a_killed_bridge_left_is_passed_over(tmp_path: Path) -> None:
    """A file and a socket that lead nowhere: no answer; a new server takes their place."""
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "control.sock"))
    left.close()
    known = {"address": str(tmp_path / "control.sock"), "key": "00"}
    (tmp_path / FILE_NAME).write_text(json.dumps(known), encoding="utf-8")
    assert ask(tmp_path, {"ask": "a"}) is None
    server = ControlServer(tmp_path, handler)
    assert ask(tmp_path, {"ask": "b"}) == {"asked": "b"}
    server.close()


def test_a_closed_server_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither file nor thread; closing twice is harmless."""
    before = set(threading.enumerate())
    server = ControlServer(tmp_path, handler)
    assert ask(tmp_path, {"ask": "a"})
    server.close()
    server.close()
    assert ask(tmp_path, {"ask": "a"}) is None
    # The thread of a client, and the timers that were to cut it, end by themselves: soon, not yet.
    left = set(threading.enumerate()) - before
    for each in left:
        each.join(10)
    assert [each.name for each in left if each.is_alive()] == []
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.usefixtures("server")
def test_a_wrong_key_is_refused(tmp_path: Path) -> None:
    """A caller that has the address but not the key gets nothing."""
    known = {"address": address_of(tmp_path), "key": "00" * 32}
    other = tmp_path / "other"
    other.mkdir()
    (other / FILE_NAME).write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(ControlError, match="try again"):
        ask(other, {"ask": "a"})
    assert ask(tmp_path, {"ask": "a"}) == {"asked": "a"}


def test_silent_callers_hold_up_nobody(tmp_path: Path) -> None:
    """Callers that connect and say nothing, or half a word, are heard beside the others and are
    cut off in the end.
    """
    server = ControlServer(tmp_path, handler, patience=0.5)
    silent = [Client(address_of(tmp_path)) for _ in range(MAX_CALLERS - 1)]
    if sys.platform != "win32":  # there, a message of a pipe is whole or not there
        with socket.socket(fileno=silent[0].fileno()) as half:
            half.send(b"\0")
            half.detach()
    assert ask(tmp_path, {"ask": "a"}) == {"asked": "a"}
    for each in silent:
        assert each.recv_bytes()  # the challenge
        with pytest.raises((EOFError, OSError)):
            each.recv_bytes()
        each.close()
    server.close()


def test_a_request_that_takes_long_blocks_no_other(tmp_path: Path) -> None:
    """While one person's approval waits for IMDS, another command has its answer."""
    begun, ended = threading.Event(), threading.Event()

    def slow(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request.get("ask") == "approve":
            begun.set()
            assert ended.wait(10)
        return handler(request)

    server = ControlServer(tmp_path, slow)
    approving = threading.Thread(target=ask, args=(tmp_path, {"ask": "approve"}))
    approving.start()
    assert begun.wait(10)
    assert ask(tmp_path, {"ask": "a"}, patience=5) == {"asked": "a"}
    ended.set()
    approving.join(10)
    server.close()


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("said", [b"", b"no JSON", b"[1]", b"\xff" * 100])
def test_garbage_is_turned_away(tmp_path: Path, said: bytes) -> None:
    """Bytes that are no greeting end that caller's talk, and nobody else's."""
    with Client(address_of(tmp_path)) as caller:
        caller.recv_bytes()
        caller.send_bytes(said)
        with pytest.raises((EOFError, OSError)):  # noqa: PT012  # what comes before it is read
            while True:
                caller.recv_bytes()
    assert ask(tmp_path, {"ask": "a"}) == {"asked": "a"}


def test_a_bridge_that_does_not_answer_is_not_waited_for_forever(tmp_path: Path) -> None:
    """The command says to try again, with its exit code."""
    release = threading.Event()

    def slow(request: Mapping[str, Any]) -> Mapping[str, Any]:
        release.wait(10)
        return {}

    server = ControlServer(tmp_path, slow)
    with pytest.raises(TryLaterError, match="try again"):
        ask(tmp_path, {"ask": "a"}, patience=0.2)
    release.set()
    server.close()


def test_another_user_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that may not be read is no sign that no bridge runs."""

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(NotPermittedError, match="run this as the user"):
        ask(tmp_path, {"ask": "a"})


def test_a_full_disk_only_puts_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge begins without it, and callers find it once there is room."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        server = ControlServer(tmp_path, handler, again=0.01)
        assert ask(tmp_path, {"ask": "a"}) is None
    eventually(lambda: ask(tmp_path, {"ask": "a"}) == {"asked": "a"}, what="an answer")
    server.close()
    assert not (tmp_path / FILE_NAME).exists()


def test_a_server_that_never_began_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for it."""
    monkeypatch.setattr(Path, "write_text", full)
    ControlServer(tmp_path, handler).close()
    assert not (tmp_path / FILE_NAME).exists()


def full(path: Path, text: str, **how: object) -> int:
    """What a disk without room says."""
    raise OSError(errno.ENOSPC, "no space left on device")
