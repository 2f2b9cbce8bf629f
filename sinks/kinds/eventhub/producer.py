"""A link to one hub that another thread can cut; the only module that imports azure.eventhub.

`close` is never called on a stuck link: the SDK would block.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from azure.eventhub import EventDataBatch, EventHubProducerClient, TransportType

from sinks.kinds.eventhub.address import HubAddress
from sinks.kinds.eventhub.errors import symbol
from sinks.kinds.eventhub.tls import TlsSockets
from sinks.shared.call_with_timeout import StuckError, call_with_timeout
from sinks.shared.proxy import Proxy
from sinks.shared.sockets import connect_to_any, cut

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

CLOSE_SECONDS: Final = 3.0
CONNECT_SECONDS: Final = 5.0
"""For a WebSocket's connection, to all addresses of the host or the proxy together."""


class _Client(EventHubProducerClient):
    """The SDK's client without the SDK's second try. With any `retry_total`, the SDK asks
    `$management` without a time limit, and sends once more (measured).
    """

    def _start_producer(self, partition_id: str, send_timeout: float | None = None) -> None:
        error = sys.exception()
        if error is not None:
            raise error
        super()._start_producer(partition_id, send_timeout)


class HubProducer:
    """One client of the SDK with one link. Used by one thread; `cut` may be called from another."""

    def __init__(
        self,
        address: HubAddress,
        *,
        credential: TokenCredential | None = None,
        proxy: Proxy | None = None,
    ) -> None:
        self.address = address
        self._is_cut = False
        self._busy = False
        self._sockets: set[socket.socket] = set()
        self._tls = None if address.emulator else TlsSockets.trusting_the_system()
        common: dict[str, Any] = {
            # No retries inside: the SDK would also repeat a send whose answer is merely late, and
            # would connect once more after a cut. The sink repeats what an idle detach cost.
            "retry_total": 0,
            "retry_backoff_factor": 0,
            # Explicit: the SDK itself would choose WebSockets whenever there is a proxy.
            "transport_type": TransportType.Amqp,
            "ssl_context": self._tls,
        }
        if address.websocket:
            common |= _over_websocket(address, proxy)
        if credential is not None:
            self._client = _Client(
                fully_qualified_namespace=address.host,
                eventhub_name=address.hub,
                credential=credential,
                **common,
            )
        else:
            # Typed as its base class by the SDK, but made as the class that is asked.
            made = _Client.from_connection_string(address.connection_string(), **common)
            self._client = cast("_Client", made)

    def open(self) -> None:
        """Connect, authenticate and attach, without a time limit of its own. Raises what the SDK
        raises.
        """
        with self._use():
            self._client.create_batch()
        self.pump()  # a hub may attach first and refuse then

    def batch(self, partition_key: str) -> EventDataBatch:
        """Return an empty batch; its limit in bytes is the one that the hub announced."""
        with self._use():
            return self._client.create_batch(partition_key=partition_key)

    def send(self, batch: EventDataBatch, *, seconds: float) -> None:
        """Send a batch and wait for the acknowledgement. Raises what the SDK raises."""
        with self._use():
            # Without `timeout` the SDK waits for ever, whatever its constructor got.
            self._client.send_batch(batch, timeout=seconds)

    def partitions(self) -> int:
        """Return how many partitions the hub has, without a time limit of its own. Raises what the
        SDK raises.
        """
        with self._use():
            return len(self._client.get_eventhub_properties()["partition_ids"])

    def pump(self) -> None:
        """Let the SDK read what arrived while idle; takes 0.2 s if nothing did. Raises what the SDK
        raises.
        """
        # The SDK only looks at the wire during a call, and has no public call for just that; its
        # keep_alive does it, but on a thread of its own that shares the link without a lock.
        work = getattr(self._handler(), "do_work", None)
        if callable(work):
            with self._use():
                work()
                if self.condition() is not None:
                    work()  # the SDK raises at the next look what it read in this one

    def condition(self) -> str | None:
        """Return the condition with which the hub ended the link or the connection, if the SDK
        knows.
        """
        for name in ("_link", "_connection"):
            ended = getattr(getattr(self._handler(), name, None), "_error", None)
            condition = symbol(getattr(ended, "condition", None))
            if condition is not None:
                return condition
        return None

    def cut(self) -> None:
        """Cut the sockets from any thread, so that a stuck call ends. Returns at once."""
        self._is_cut = True
        if self._tls is not None:
            self._tls.cut()
        if not self._cut_all() and self._busy:
            # The emulator's socket is not there yet: the SDK gives a connect one second.
            threading.Thread(target=self._cut_soon, name="eventhub-cut", daemon=True).start()

    def close(self) -> None:
        """Close the link within `CLOSE_SECONDS`; after `cut`, only make sure that its sockets are
        closed.
        """
        self._remember()
        if self._is_cut:
            if not self._busy:
                self._release()
            return
        try:
            call_with_timeout(CLOSE_SECONDS, self._client.close)
        except StuckError:
            self.cut()
        except Exception:  # noqa: BLE001  # whatever it is, the link is thrown away
            self._release()
        else:
            self._release()

    def _cut_all(self) -> bool:
        self._remember()
        for sock in list(self._sockets):
            cut(sock)
        return bool(self._sockets)

    def _cut_soon(self) -> None:
        until = time.monotonic() + CLOSE_SECONDS
        while self._busy and not self._cut_all() and time.monotonic() < until:
            time.sleep(0.05)

    @contextlib.contextmanager
    def _use(self) -> Iterator[None]:
        self._busy = True  # before the look at `_is_cut`, as `cut` sets that before it looks here
        try:
            if self._is_cut:
                raise ConnectionAbortedError
            yield
        finally:
            self._busy = False
            self._remember()
            if self._is_cut:
                self._release()

    def _release(self) -> None:
        # The SDK leaves its socket to the garbage collector if the peer closed first.
        for sock in [*self._sockets, *(self._tls.sockets if self._tls is not None else ())]:
            with contextlib.suppress(OSError):
                sock.close()
        self._sockets.clear()

    def _remember(self) -> None:
        # Without TLS (the emulator on loopback) the socket is only known to the SDK.
        connection = getattr(self._handler(), "_connection", None)
        sock = getattr(getattr(connection, "_transport", None), "sock", None)
        if self.address.websocket:
            sock = getattr(sock, "sock", None)
        if isinstance(sock, socket.socket):
            self._sockets.add(sock)

    def _handler(self) -> object | None:
        # Private names, so everything here must work without them: then a stuck thread stays
        # until its peer goes, a detach is noticed at the next send, and nothing else changes.
        producers = getattr(self._client, "_producers", None)
        if not isinstance(producers, dict):
            return None
        with contextlib.suppress(RuntimeError):  # the dictionary may change meanwhile
            for producer in producers.values():
                handler: object | None = getattr(producer, "_handler", None)
                if handler is not None:
                    return handler
        return None


def _over_websocket(address: HubAddress, proxy: Proxy | None) -> dict[str, Any]:
    _try_every_address()
    named: dict[str, Any] = {"transport_type": TransportType.AmqpOverWebsocket}
    if address.emulator:  # the SDK forgets the port otherwise
        named["custom_endpoint_address"] = f"sb://{address.host}:{address.port}"
    if proxy is not None:
        named["http_proxy"] = {
            "proxy_hostname": proxy.host,
            "proxy_port": proxy.port,
            "username": proxy.username,
            "password": proxy.password,
        }
    return named


def _try_every_address() -> None:
    """Have websocket-client go on to a host's next address also where one does not answer, and not
    only where one refuses the connection (1.9).
    """
    from websocket import _http, _socket  # noqa: PLC0415  # only where they are used

    def open_socket(
        found: Sequence[tuple[Any, ...]], options: Sequence[Any], timeout: float | None
    ) -> socket.socket:
        options = (*_socket.DEFAULT_SOCKET_OPTION, *options)
        connection = connect_to_any(found, timeout=CONNECT_SECONDS, options=options)
        connection.settimeout(timeout)
        return connection

    _http._open_socket = open_socket  # noqa: SLF001  # docs/decisions/library-internals.md
