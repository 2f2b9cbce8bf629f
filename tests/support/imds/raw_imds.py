"""An HTTP server that answers any bytes it is given, and remembers what it was asked, raw."""

import json
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Self


def reply(
    status: str = "200 OK", body: bytes = b'{"Events":[]}', *, headers: Sequence[str] = ()
) -> bytes:
    """An answer as it goes over the wire."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def refusal(*newest: object) -> bytes:
    """IMDS's 400 for an api-version, with the newer ones that it names."""
    return reply("400 Bad Request", json.dumps({"error": "x", "newest-versions": newest}).encode())


class RawImds:
    """Answers `replies` one after the other, the last one for ever."""

    def __init__(self, *replies: bytes, closing: bool = False) -> None:
        self.requests: list[str] = []
        self.connections = 0
        self._replies = list(replies) or [reply()]
        self._closing = closing
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.2)  # Wine wakes no thread that waits for a connection
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._lock = threading.Lock()

    @property
    def versions(self) -> list[str]:
        """The api-version of each request."""
        return [each.split("api-version=")[1].split()[0] for each in self.requests]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # Windows shuts no listener down
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for each in self._open:
                each.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self.connections += 1
            with self._lock:
                self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        received = b""
        try:
            while True:
                while b"\r\n\r\n" not in received:
                    more = connection.recv(65536)
                    if not more:
                        return
                    received += more
                head, _, received = received.partition(b"\r\n\r\n")
                self.requests.append(head.decode())
                answer = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
                connection.sendall(answer)
                if self._closing:
                    connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return
        finally:
            connection.close()
