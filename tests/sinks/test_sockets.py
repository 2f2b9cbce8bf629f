"""Cutting a socket: whoever waits on it wakes, on every system."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

from support.sinks.throwaway_ca import ThrowawayCa

from sinks.sockets import cut

PATIENCE = 30.0


def woken(connection: socket.socket) -> bool:
    """Whether a reader that waits for ever ends once the connection is cut."""
    ready = threading.Event()

    def read() -> None:
        ready.set()
        with suppress(OSError):
            connection.recv(1)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    ready.wait(PATIENCE)
    reader.join(0.2)  # long enough to be within the read
    cut(connection)
    reader.join(PATIENCE)
    return not reader.is_alive()


def test_a_reader_wakes() -> None:
    """A read without a limit ends when another thread cuts its socket; a second cut is harmless."""
    near, far = socket.socketpair()
    with near, far:
        assert woken(near)
        cut(near)


def test_a_reader_within_tls_wakes(tmp_path: Path) -> None:
    """The same within TLS."""
    ca = ThrowawayCa(tmp_path)
    ours, theirs = (
        ssl.create_default_context(cafile=ca.cert),
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
    )
    pair = ca.server()
    theirs.load_cert_chain(pair.cert, pair.key)
    near, far = socket.socketpair()
    near.settimeout(PATIENCE)
    far.settimeout(PATIENCE)
    served: list[ssl.SSLSocket] = []
    server = threading.Thread(
        target=lambda: served.append(theirs.wrap_socket(far, server_side=True)), daemon=True
    )
    server.start()
    with ours.wrap_socket(near, server_hostname="localhost") as secured:
        server.join(PATIENCE)
        assert woken(secured)
    served[0].close()


def test_a_closed_socket_can_be_cut() -> None:
    """Nothing is left to cut, and nothing is raised."""
    near, far = socket.socketpair()
    far.close()
    near.close()
    cut(near)
