"""A web server of the stage: stateless, with its data in a file that stands for a database.

`python web.py PORT DRAIN_FILE DATABASE`. POST appends its body and answers once that is written.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT, DRAIN_FILE, DATABASE = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])


class Handler(BaseHTTPRequestHandler):
    """What the page of the recipe asks for: 404 from the checked page while the file exists."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The checked page, or everything."""
        if self.path == "/healthz":
            self._answer(404 if DRAIN_FILE.exists() else 200, b"")
        elif self.path == "/all":
            self._answer(200, DATABASE.read_bytes())
        else:
            self._answer(200, b"hello")

    def do_POST(self) -> None:
        """Store a line."""
        line = self.rfile.read(int(self.headers["Content-Length"]))
        with DATABASE.open("ab", buffering=0) as database:
            database.write(line + b"\n")
        self._answer(200, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Restarts on the same port."""

    daemon_threads = True


Server(("127.0.0.1", PORT), Handler).serve_forever()
