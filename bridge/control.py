"""How a command on the same machine asks the running bridge, which alone may open the store.

A local socket (a named pipe on Windows) whose address and key lie in the state directory,
readable for its owner only. It is no network interface and must never become one.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Final

from bridge import host

FILE_NAME: Final = "control.json"
_MAX_BYTES: Final = 1 << 24

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers a request; raises `ControlError` where it cannot."""


class ControlError(Exception):
    """The running bridge cannot do what was asked; the message says why."""


class ControlServer:
    """Answers requests one at a time, in a thread of its own."""

    def __init__(self, directory: Path, handler: Handler) -> None:
        self._path = directory / FILE_NAME
        self._handler = handler
        key = secrets.token_bytes(32)
        self._listener = Listener(host.control_address(directory), authkey=key)
        self._path.unlink(missing_ok=True)
        self._path.touch(mode=0o600)
        self._path.write_text(
            json.dumps({"address": self._listener.address, "key": key.hex()}), encoding="utf-8"
        )
        threading.Thread(target=self._serve, name="control", daemon=True).start()

    def close(self) -> None:
        """Answer nobody from now on."""
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._listener.close()

    def _serve(self) -> None:
        while self._path.exists():
            try:
                with self._listener.accept() as connection:
                    self._answer(connection)
            except (AuthenticationError, EOFError, OSError, ValueError):
                continue  # a caller that is not ours, or that went away

    def _answer(self, connection: Connection) -> None:
        request = json.loads(connection.recv_bytes(_MAX_BYTES))
        try:
            answer = {"ok": dict(self._handler(request))}
        except ControlError as error:
            answer = {"error": {"message": str(error)}}
        connection.send_bytes(json.dumps(answer).encode())


def ask(directory: Path, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Ask the bridge that uses this state directory; None where none is running.

    Raises `ControlError` with the bridge's own words where it cannot.
    """
    try:
        known = json.loads((directory / FILE_NAME).read_text(encoding="utf-8"))
        with Client(known["address"], authkey=bytes.fromhex(known["key"])) as connection:
            connection.send_bytes(json.dumps(dict(request)).encode())
            answer = json.loads(connection.recv_bytes(_MAX_BYTES))
    except (FileNotFoundError, ConnectionError, EOFError, ValueError, KeyError):
        return None
    if "error" in answer:
        raise ControlError(answer["error"]["message"])
    ok: dict[str, Any] = answer["ok"]
    return ok
