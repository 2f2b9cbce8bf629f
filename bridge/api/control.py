"""The control socket: a command on this machine asks the running bridge. Its address and key are
readable for their owner only; it must never become a network interface.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from pathlib import Path
from typing import Any, Final

from bridge import system
from sinks.shared.errors import NotPermittedError, TryLaterError
from sinks.shared.threads import try_to_start

FILE_NAME: Final = "control.json"
TALK_SECONDS: Final = 5.0
"""How long a client may take to authenticate and to send a request, and to read the answer."""
ANSWER_SECONDS: Final = 30.0
"""How long a command waits for the running bridge."""
MAX_CALLERS: Final = 8
"""How many clients are served at once; more are disconnected."""
AGAIN_SECONDS: Final = 5.0
"""How long a server that could not start, as on a full disk, waits until it tries again."""
_MAX_BYTES: Final = 1 << 24

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers a request, from any thread; raises `ControlError` if it cannot."""


class ControlError(Exception):
    """The running bridge cannot do what was asked; the message says why."""


class ControlServer:
    """Serves each client in a thread of its own, so that neither a silent client nor a request that
    takes long blocks the others. If it cannot start, it retries: the bridge works without it.
    """

    def __init__(
        self,
        directory: Path,
        handler: Handler,
        *,
        patience: float = TALK_SECONDS,
        again: float = AGAIN_SECONDS,
    ) -> None:
        self._directory = directory
        self._path = directory / FILE_NAME
        self._handler = handler
        self._patience = patience
        self._again = again
        self._key = secrets.token_bytes(32)
        self._closed = threading.Event()
        self._callers = threading.BoundedSemaphore(MAX_CALLERS)
        self._listener: Listener | None = None
        self._is_published = self._begin()
        self._thread = threading.Thread(target=self._serve, name="control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering, and remove the published address. If the disk refuses that, it stays, and
        counts as that of a bridge that was killed.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        if self._listener is not None:
            with suppress(OSError):  # a close alone would leave the thread waiting
                system.wake_listener(str(self._listener.address))
        self._thread.join(self._patience)
        if self._listener is not None:
            with suppress(OSError):
                self._listener.close()

    def _begin(self) -> bool:
        """Listen, and publish the address; return whether both succeeded."""
        try:
            self._listener = self._listener or _listen(self._directory)
            self._publish(self._listener)
        except OSError:
            return False
        return True

    def _publish(self, listener: Listener) -> None:
        """Write address and key in one step: a client may read them at any moment."""
        new = self._path.with_suffix(".new")
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        published = {"address": listener.address, "key": self._key.hex()}
        new.write_text(json.dumps(published), encoding="utf-8")
        new.replace(self._path)

    def _serve(self) -> None:
        while not self._is_published and not self._closed.wait(self._again):
            self._is_published = self._begin()
        while self._listener is not None and not self._closed.is_set():
            try:
                connection = self._listener.accept()
            except OSError:
                self._closed.wait(0.1)  # the client has disconnected, or no descriptor is left
                continue
            if self._closed.is_set() or not self._callers.acquire(blocking=False):
                connection.close()
                continue
            caller = threading.Thread(
                target=self._hear, args=(connection,), name="control-caller", daemon=True
            )
            if not try_to_start(caller):
                self._callers.release()
                connection.close()  # the client is told to try again

    def _hear(self, connection: Connection) -> None:
        try:
            with connection:
                with _cut_after(self._patience, connection):
                    deliver_challenge(connection, self._key)
                    answer_challenge(connection, self._key)
                    text = connection.recv_bytes(_MAX_BYTES)
                answer = json.dumps(self._answer(text)).encode()
                with _cut_after(self._patience, connection):
                    connection.send_bytes(answer)
        except (AuthenticationError, EOFError, OSError, ValueError):
            pass  # not a client of ours, or it disconnected, or it sent nothing
        finally:
            self._callers.release()

    def _answer(self, text: bytes) -> dict[str, Any]:
        try:
            request = json.loads(text)
            if not isinstance(request, dict):
                raise ControlError("a request is a JSON object")  # noqa: TRY301  # answered below
            return {"ok": dict(self._handler(request))}
        except ControlError as error:
            return {"error": {"message": str(error)}}
        except Exception as error:  # noqa: BLE001  # the caller is told; the bridge goes on
            return {"error": {"message": f"the bridge failed: {type(error).__name__}: {error}"}}


def send(
    directory: Path, request: Mapping[str, Any], *, patience: float = ANSWER_SECONDS
) -> dict[str, Any] | None:
    """Send a request to the bridge that uses this state directory; return None if no bridge runs.
    Raises `ControlError` if it refuses, `NotPermittedError` if this user may not read the
    directory, and `TryLaterError` if it does not answer.
    """
    try:
        published = json.loads((directory / FILE_NAME).read_text(encoding="utf-8"))
        address = published["address"]
        key = bytes.fromhex(published["key"])
        connection: Any = Client(address)  # a Connection, or on Windows a PipeConnection
    except PermissionError as error:
        raise NotPermittedError(
            f"this user may not look into the state directory {directory}",
            remedy="run this as the user that the bridge runs as, or as an administrator",
        ) from error
    except (OSError, ValueError, KeyError, TypeError):
        return None  # never started, or killed: nothing listens at the address that it left
    answer = _talk(connection, key, request, patience)
    if "error" in answer:
        raise ControlError(answer["error"]["message"])
    ok: dict[str, Any] = answer["ok"]
    return ok


def _talk(
    connection: Connection, key: bytes, request: Mapping[str, Any], patience: float
) -> dict[str, Any]:
    try:
        # On Windows the cut, which runs in its own thread, may make the close itself fail.
        with connection, _cut_after(patience, connection):
            answer_challenge(connection, key)
            deliver_challenge(connection, key)
            connection.send_bytes(json.dumps(dict(request)).encode())
            answer: dict[str, Any] = json.loads(connection.recv_bytes(_MAX_BYTES))
    except AuthenticationError:
        raise ControlError("the running bridge has just restarted; try again") from None
    except (EOFError, OSError, ValueError) as error:
        raise TryLaterError(
            f"the running bridge gave no answer within {patience:g} s", remedy="try again"
        ) from error
    return answer


def _listen(directory: Path) -> Listener:
    try:
        address = system.control_address(directory)
        listener = Listener(address)
        if address is not None:
            system.make_private(Path(address))
        return listener  # noqa: TRY300
    except OSError:  # not every file system can hold a socket
        return Listener(None)


@contextmanager
def _cut_after(seconds: float, connection: Connection) -> Iterator[None]:
    """Cut the connection if the block lasts longer than so many seconds; a call that waits on it
    then raises. Raises `OSError` if that cannot be watched over now.
    """
    timer = threading.Timer(seconds, _cut, args=(connection,))
    timer.daemon = True
    if not try_to_start(timer):
        raise OSError(errno.EAGAIN, "no thread can be started")
    try:
        yield
    finally:
        timer.cancel()


def _cut(connection: Connection) -> None:
    with suppress(OSError, ValueError):
        if system.is_windows():
            connection.close()
            return
        # Closing a descriptor would not wake a thread that reads from it; this does.
        with socket.socket(fileno=os.dup(connection.fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)
