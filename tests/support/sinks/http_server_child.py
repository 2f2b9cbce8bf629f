"""The server's end of `http_server`, which obeys one JSON order a line of its standard input."""

import base64
import json
import socket
import ssl
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import Any


class _Server:
    """Connections, what arrived on them, and the answers that are still to be given."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.answers: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, int]] = []
        self.connections = 0
        self.lock = threading.Lock()
        self.open: set[socket.socket] = set()
        self.listener: socket.socket | None = None
        self.taker: threading.Thread
        # Bound, never listening: keeps the port ours while the server is 'away', and refuses.
        self.place = socket.socket()
        self.place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.place.bind(("127.0.0.1", 0))

    def start(self) -> int:
        port: int = self.place.getsockname()[1]
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(64)
        self.listener.settimeout(0.2)  # Wine wakes no thread that waits for a connection
        self.taker = threading.Thread(target=self._accept, args=(self.listener,), daemon=True)
        self.taker.start()
        return port

    def stop(self) -> None:
        if self.listener:
            with suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None
            self.taker.join(5)  # the port is taken as long as a thread waits on it
        with self.lock:
            for connection in self.open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with self.lock:
                self.connections += 1
                self.open.add(connection)
                number = self.connections
            threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, raw: socket.socket, number: int) -> None:
        connection = raw
        try:
            with self.lock:
                deaf = self.answers[:1] and self.answers[0]["mode"] == "deaf"
                if deaf:
                    self.answers.pop(0)
            if deaf:
                threading.Event().wait()
            if self.tls:
                # The wrapped socket takes over the descriptor; a plain copy lets stop() cut it.
                copy = raw.dup()
                connection = self.tls.wrap_socket(raw, server_side=True)
                with self.lock:
                    self.open.discard(raw)
                    self.open.add(copy)
                raw = copy
            while self._exchange(connection, number):
                pass
        except OSError:
            pass
        finally:
            with self.lock:
                self.open.discard(raw)
            connection.close()
            raw.close()

    def _exchange(self, connection: socket.socket, number: int) -> bool:
        """Read one request, give one answer; whether the connection is to live on."""
        data = b""
        while b"\r\n\r\n" not in data:
            if not (chunk := connection.recv(65536)):
                return False
            data += chunk
            if data.startswith(b"\x16\x03"):  # a TLS hello to a plain port
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                return False
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        while len(body) < (lengths or [0])[0]:
            if not (chunk := connection.recv(65536)):
                return False
            body += chunk
        with self.lock:
            parts = (base64.b64encode(head).decode(), base64.b64encode(body).decode())
            self.requests.append((*parts, number))
            answer = self.answers.pop(0) if self.answers else {"mode": "normal", "status": 204}
        return self._answer(connection, answer)

    def _answer(self, connection: socket.socket, answer: dict[str, Any]) -> bool:
        time.sleep(answer.get("delay", 0))
        mode = answer["mode"]
        if mode == "silence":
            while connection.recv(65536):
                pass
        elif mode == "reset":
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif mode == "garbage":
            connection.sendall(b"\x00\x01 this is no HTTP\r\n\r\n")
        elif mode != "close":
            return self._speak(connection, mode, answer)
        return False

    def _speak(self, connection: socket.socket, mode: str, answer: dict[str, Any]) -> bool:
        """Answer in HTTP; whether the connection is to live on."""
        body = base64.b64decode(answer.get("body", ""))
        headers = dict(answer.get("headers", {}))
        if mode == "endless":
            headers["Transfer-Encoding"] = "chunked"
        elif mode == "drip-close":
            headers["Connection"] = "close"
            headers.pop("Content-Length", None)
        elif answer["status"] not in (204, 304):
            headers.setdefault("Content-Length", str(len(body)))
        head = f"HTTP/1.1 {answer['status']} Told\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        interim = "".join(
            f"HTTP/1.1 {each} Wait\r\nX-Hint: a\r\n\r\n" for each in answer.get("interim", ())
        )
        start = (interim + head).encode("latin-1")
        while mode == "interim":
            connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
            time.sleep(answer["every"])
        if mode.startswith("cut-"):
            connection.sendall(start + (b"X-Cut: a" if mode == "cut-line" else b""))
            return False
        connection.sendall(start + (b"X-Drip: " if mode == "drip-headers" else b"\r\n"))
        while mode.startswith("drip-"):
            connection.sendall(b"x")
            time.sleep(answer["every"])
        while mode == "endless":
            connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        connection.sendall(body)
        return str(headers.get("Connection", "")).lower() != "close"

    def obey(self, order: dict[str, Any]) -> Any:
        """Do what the parent said, and give what it asked for."""
        match order["do"]:
            case "start":
                return self.start()
            case "stop":
                self.stop()
            case "answer":
                self.answers += order["answers"]
            case "requests":
                return self.requests
            case "connections":
                return self.connections
            case "open":
                return len(self.open)
        return None


def main(paths: list[str]) -> None:
    """Obey one order per line of standard input, until it closes."""
    tls = None
    if paths:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*paths)
    server = _Server(tls)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(server.obey(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
