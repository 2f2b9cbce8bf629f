"""A WebSocket server on loopback that passes the bytes of its messages on to a port, and back."""

import base64
import hashlib
import re
import socket
import ssl
import struct
import threading
from contextlib import suppress
from typing import Self

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10


class WebSocketGate:
    """Listens while it is entered. `answer` is the status of the next handshakes."""

    host = "127.0.0.1"

    def __init__(self, target: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._target = target
        self._tls = tls
        self._listener = socket.create_server((self.host, 0))
        self.port: int = self._listener.getsockname()[1]
        self.answer = 101
        self.paths: list[str] = []
        """What clients asked for."""
        self._sockets: set[socket.socket] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="ws gate", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End every connection, without a word."""
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), name="ws", daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with suppress(OSError, EOFError), peer:
            plain = self._tls.wrap_socket(peer, server_side=True) if self._tls else peer
            self._sockets.add(plain)
            with plain, plain.makefile("rb") as reader:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += reader.readline() or self._end()
                self.paths.append(head.split(b" ")[1].decode())
                if self.answer != 101:
                    plain.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % self.answer)
                    return
                found = re.search(rb"(?i)sec-websocket-key: (\S+)", head)
                assert found is not None
                accept = base64.b64encode(hashlib.sha1(found[1] + _GUID).digest())
                protocol = re.search(rb"(?i)sec-websocket-protocol: (\S+)", head)
                answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                answer += b"Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n" % accept
                if protocol:
                    answer += b"Sec-WebSocket-Protocol: %s\r\n" % protocol[1]
                plain.sendall(answer + b"\r\n")
                self._pass_on(plain, reader)

    def _pass_on(self, peer: socket.socket, reader: object) -> None:
        with socket.create_connection((self.host, self._target)) as behind:
            self._sockets.add(behind)
            lock = threading.Lock()
            back = threading.Thread(target=self._back, args=(behind, peer, lock), daemon=True)
            back.start()
            try:
                self._forth(reader, peer, behind, lock)
            finally:
                for each in (behind, peer):
                    with suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
                back.join(5)

    def _forth(
        self, reader: object, peer: socket.socket, behind: socket.socket, lock: object
    ) -> None:
        while True:
            first, second = self._read(reader, 2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", self._read(reader, 2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self._read(reader, 8))
            mask = self._read(reader, 4)  # a client masks, always
            body = bytes(b ^ mask[i % 4] for i, b in enumerate(self._read(reader, size)))
            if first & 0x0F == _CLOSE:
                return
            if first & 0x0F == _PING:
                self._send(peer, _PONG, body, lock)
            elif first & 0x0F != _PONG:
                behind.sendall(body)

    def _back(self, behind: socket.socket, peer: socket.socket, lock: object) -> None:
        with suppress(OSError):
            while data := behind.recv(65536):
                self._send(peer, _BINARY, data, lock)
        with suppress(OSError):
            self._send(peer, _CLOSE, b"", lock)
            peer.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _send(peer: socket.socket, kind: int, body: bytes, lock: object) -> None:
        size = len(body)
        head = bytes([0x80 | kind])
        head += (
            bytes([size])
            if size < 126
            else (
                b"\x7e" + struct.pack("!H", size)
                if size < 65536
                else b"\x7f" + struct.pack("!Q", size)
            )
        )
        assert isinstance(lock, type(threading.Lock()))
        with lock:
            peer.sendall(head + body)

    def _read(self, reader: object, size: int) -> bytes:
        read = getattr(reader, "read")(size)  # noqa: B009
        return read if len(read) == size else self._end()

    @staticmethod
    def _end() -> bytes:
        raise EOFError
