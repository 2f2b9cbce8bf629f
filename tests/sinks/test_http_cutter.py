"""The cutter of the HTTP sinks: what is late is cut, what is not is left alone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from sinks.http.cutter import Cutter

LONG = 60.0


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection on which nothing comes by itself."""
    near, far = socket.socketpair()
    near.settimeout(LONG)
    with near, far:
        yield near, far


@pytest.fixture
def cutter(ends: tuple[socket.socket, socket.socket]) -> Iterator[Cutter]:
    """A cutter of the near end, whose thread ends with the test."""
    made = Cutter()
    made.connection = SimpleNamespace(sock=ends[0])
    before = set(threading.enumerate())
    yield made
    made.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG)


def watchers() -> set[threading.Thread]:
    """The threads that watch over requests, whoever's."""
    return {each for each in threading.enumerate() if each.name == "http-cutter"}


def test_what_is_late_is_cut(cutter: Cutter, ends: tuple[socket.socket, socket.socket]) -> None:
    """A read that would never end does, and the cutter says why."""
    with cutter.after(0.05):
        assert ends[0].recv(1) == b""
    assert cutter.why == "no answer within 0.05 s"


def test_a_shorter_time_is_kept_too(
    cutter: Cutter, ends: tuple[socket.socket, socket.socket]
) -> None:
    """The thread that has planned to look much later is told of one that is due before."""
    with cutter.after(LONG):
        pass
    with cutter.after(0.05):
        assert ends[0].recv(1) == b""
    assert cutter.why == "no answer within 0.05 s"


def test_what_is_over_is_not_cut(cutter: Cutter, ends: tuple[socket.socket, socket.socket]) -> None:
    """A time that runs out after its block says nothing of the next."""
    with cutter.after(0.05):
        pass
    ends[1].settimeout(0.2)
    with pytest.raises(TimeoutError), cutter.after(LONG):
        ends[1].recv(1)  # cut, it would end with b""
    assert cutter.why == ""


def test_many_requests_share_one_thread(cutter: Cutter) -> None:
    """A backlog costs one thread, not one per request."""
    others, found = watchers(), set()
    for _ in range(50):
        with cutter.after(LONG):
            found |= watchers()
    assert len(found - others) == 1


def test_close_ends_the_thread_and_a_request_starts_another(
    cutter: Cutter, ends: tuple[socket.socket, socket.socket]
) -> None:
    """Nothing is left of a client that is closed, and one that is used again is watched again."""
    others = watchers()
    with cutter.after(LONG):
        (first,) = watchers() - others
    cutter.close()
    first.join(LONG)
    assert not first.is_alive()
    with cutter.after(0.05):
        assert ends[0].recv(1) == b""
