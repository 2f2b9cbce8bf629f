"""A stand-in for an Event Hubs namespace on loopback, which can misbehave on demand.

It speaks enough AMQP 1.0 for the producer and the consumer of azure-eventhub. It must never
listen on anything but loopback, and never check a signature: its secrets are made up.
"""

import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from support.amqp.connection import Connection
from support.amqp.faults import Armed, HubFault
from support.amqp.message import HubMessage
from support.ports import free_port

SHARED_KEY = "c2VlIHRoZSBzdGFuZC1pbiBodWI="


@dataclass
class Partition:
    """The log of one partition."""

    messages: list[tuple[HubMessage, int]] = field(default_factory=list)


class EventHubServer:
    """A namespace whose hubs appear when they are used; a context manager that listens."""

    def __init__(
        self,
        *,
        partitions: int = 2,
        max_message_size: int = 1024 * 1024,
        announced_size: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.partitions = partitions
        self.max_message_size = max_message_size
        self.announced_size = announced_size
        """What an attach promises, where it differs from what is really taken."""
        self.tls = tls
        self.port = free_port()
        self.misbehaved = threading.Event()
        """Set once an armed fault has struck, so that a test need not guess when."""
        self.tokens: list[str] = []
        """Every token that was put, for tests that look for a rotated key."""
        self.accepted = 0
        """How many TCP connections have come in."""
        self.bugs: list[Exception] = []
        """What the stand-in itself got wrong; a test may look."""
        self.lock = threading.RLock()
        self._hubs: dict[str, list[Partition]] = {}
        self._arrivals: dict[str, list[HubMessage]] = {}
        self._armed: dict[HubFault, Armed] = {}
        self._listener: socket.socket | None = None
        self._connections: list[Connection] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # What a test says.

    def connection_string(self, hub: str, *, key: str = SHARED_KEY) -> str:
        """What the portal would show, with the switch that turns TLS off."""
        return (
            f"Endpoint=sb://127.0.0.1:{self.port}/;SharedAccessKeyName=send;"
            f"SharedAccessKey={key};EntityPath={hub};UseDevelopmentEmulator=true"
        )

    def misbehave(
        self,
        fault: HubFault,
        *,
        condition: str = "amqp:internal-error",
        description: str = "made up by the stand-in",
        status: int = 401,
        after: int = 0,
        times: int | None = None,
    ) -> None:
        """Arm a fault, at once or after so many good turns, for good or for so many times.

        Faults of other kinds stay armed.
        """
        with self.lock:
            self.misbehaved.clear()
            self._armed[fault] = Armed(fault, condition, description, status, after, times)

    def heal(self) -> None:
        """Disarm every fault. What was swallowed stays swallowed."""
        with self.lock:
            self._armed.clear()

    def detach_all(self, condition: str = "amqp:link:detach-forced") -> None:
        """Detach every sender's link now, as a hub does with a link that was idle too long."""
        for connection in list(self._connections):
            connection.detach_senders(condition)

    def messages(self, hub: str) -> list[HubMessage]:
        """What was sent to a hub, in order of arrival over all partitions."""
        with self.lock:
            return list(self._arrivals.get(hub, []))

    # Coming and going.

    def start(self) -> None:
        """Listen; after a `stop`, on the same port and with what was stored."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(16)
        self._listener = listener
        self._spawn(lambda: self._accept(listener))

    def stop(self) -> None:
        """Refuse connections and cut those that stand. Harmless when stopped."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        # A blocked accept() is not woken by close(), but it is by a connection.
        with socket.create_connection(("127.0.0.1", self.port), timeout=5):
            pass
        listener.close()
        with self.lock:
            connections, self._connections = self._connections, []
            threads, self._threads = self._threads, []
        for connection in connections:
            connection.cut()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(5)

    def _spawn(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name="stand-in hub", daemon=True)
        with self.lock:
            self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                if self._listener is not listener:
                    peer.close()
                    return
                self.accepted += 1
                connection = Connection(self, peer)
                self._connections.append(connection)
            self._spawn(connection.run)

    # What a connection asks.

    def struck(self, fault: HubFault) -> Armed | None:
        """The fault, if it is armed; it then counts as having struck."""
        with self.lock:
            armed = self._armed.get(fault)
            if armed is None:
                return None
            if armed.skip:
                armed.skip -= 1
                return None
            if armed.left is not None:
                armed.left -= 1
                if armed.left <= 0:
                    del self._armed[fault]
            self.misbehaved.set()
            return armed

    def hub(self, name: str) -> list[Partition]:
        """The partitions of a hub, made at first use."""
        with self.lock:
            return self._hubs.setdefault(name, [Partition() for _ in range(self.partitions)])

    def append(self, hub: str, messages: list[HubMessage]) -> None:
        """Store messages, each in the partition that its key chooses, and tell the consumers."""
        with self.lock:
            logs = self.hub(hub)
            for message in messages:
                key = (message.partition_key or "").encode()
                log = logs[zlib.crc32(key) % len(logs)]
                log.messages.append((message, int(time.time() * 1000)))
                self._arrivals.setdefault(hub, []).append(message)
            listeners = list(self._connections)
        for connection in listeners:
            connection.pump()


__all__ = ["SHARED_KEY", "EventHubServer", "HubFault"]
