"""The links of the stand-in hub: a producer's, a consumer's, and those of requests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from support.amqp.codec import Described, Symbol, Timestamp
from support.amqp.faults import HubFault
from support.amqp.message import decode_message, reply, unpack

if TYPE_CHECKING:
    from support.amqp.connection import Connection

ACCEPTED, REJECTED, RELEASED, ERROR = 0x24, 0x25, 0x26, 0x1D
TOO_LARGE = "amqp:link:message-size-exceeded"
_SELECTOR = re.compile(r"amqp\.annotation\.x-opt-([a-z-]+) (>=?) '([^']*)'")


def address_of(terminus: Described) -> str:
    """The path of a source or a target, whatever host stands before it."""
    address = str(terminus.value[0])
    return urlsplit(address).path.lstrip("/") if "://" in address else address


def error(condition: str, description: str) -> Described:
    """An AMQP error, all three fields written, because the SDK counts places."""
    return Described(ERROR, [Symbol(condition), description, {}])


class Link:
    """What every link has: its place, and the pieces of the delivery that is coming in."""

    is_sink = False
    """Whether the peer sends on it."""

    def __init__(self, connection: Connection, channel: int, handle: int, *, address: str) -> None:
        self.connection = connection
        self.channel = channel
        self.handle = handle
        self.address = address
        self.received = 0
        self._pieces = b""
        self._first: list[Any] = []

    def flow(self, fields: list[Any]) -> None:
        """The peer's credit, for those who care."""

    def transfer(self, fields: list[Any], payload: bytes) -> None:
        """A frame of a delivery; the last one makes it whole."""
        if not self._pieces:
            self._first = fields
        self._pieces += payload
        if fields[5]:
            return
        whole, self._pieces = self._pieces, b""
        self.received += 1
        self.arrived(int(self._first[1]), int(self._first[3] or 0), whole)

    def arrived(self, delivery: int, message_format: int, payload: bytes) -> None:
        """A whole delivery."""


class Sender(Link):
    """A producer's link to a hub."""

    is_sink = True

    def arrived(self, delivery: int, message_format: int, payload: bytes) -> None:
        server, connection = self.connection.server, self.connection
        if len(payload) > server.max_message_size:
            connection.detach(self, TOO_LARGE, "the message is too large")
        elif armed := server.struck(HubFault.DETACH):
            connection.detach(self, armed.condition, armed.description)
        elif armed := server.struck(HubFault.CLOSE):
            connection.close(armed.condition, armed.description)
        elif server.struck(HubFault.DROP):
            connection.cut()
        elif server.struck(HubFault.NO_ACK):
            return
        elif armed := server.struck(HubFault.REJECT):
            refused = Described(REJECTED, [error(armed.condition, armed.description)])
            connection.settle(self, delivery, refused)
            connection.grant(self)
        elif server.struck(HubFault.RELEASE):
            connection.settle(self, delivery, Described(RELEASED, []))
            connection.grant(self)
        else:
            server.append(self.address, unpack(payload, message_format))
            if not server.struck(HubFault.LOST_ACK):
                connection.settle(self, delivery, Described(ACCEPTED, []))
                connection.grant(self)


class Consumer(Link):
    """A consumer's link from one partition."""

    def __init__(
        self, connection: Connection, channel: int, handle: int, *, address: str, source: Described
    ) -> None:
        super().__init__(connection, channel, handle, address=address)
        hub, _, place = address.partition("/ConsumerGroups/")
        partition = place.rpartition("/")[2]
        self._log = connection.server.hub(hub)[int(partition)].messages
        self._next = self._start(source)
        self._sent = 0
        self._limit = 0

    def _start(self, source: Described) -> int:
        filters = (source.value[7] if len(source.value) > 7 else None) or {}
        text = " ".join(
            value.value if isinstance(value.value, str) else bytes(value.value).decode()
            for value in filters.values()
        )
        found = _SELECTOR.search(text)
        if found is None or found[3] == "-1":
            return 0
        if found[3] == "@latest":
            return len(self._log)
        limit = int(found[3]) + (found[2] == ">")
        if found[1] == "enqueued-time":
            return sum(1 for _, enqueued in self._log if enqueued < limit)
        return limit

    def flow(self, fields: list[Any]) -> None:
        self._limit = int(fields[5] or 0) + int(fields[6] or 0)
        self.pump()

    def pump(self) -> None:
        """Send what there is, as far as the peer's credit goes."""
        with self.connection.server.lock:
            while self._next < len(self._log) and self._sent < self._limit:
                message, enqueued = self._log[self._next]
                encoded = message.encoded(sequence=self._next, enqueued=enqueued)
                self._next += 1
                self._sent += 1
                self.connection.deliver(self, encoded)


class Requests(Link):
    """One half of `$cbs` or `$management`: requests come in on one link, answers go by another."""

    def __init__(
        self, connection: Connection, channel: int, handle: int, *, address: str, is_sink: bool
    ) -> None:
        super().__init__(connection, channel, handle, address=address)
        self.is_sink = is_sink

    def arrived(self, delivery: int, message_format: int, payload: bytes) -> None:
        self.connection.settle(self, delivery, Described(ACCEPTED, []))
        self.connection.grant(self)
        request = decode_message(payload)
        answer = self._token(request.value) if self.address == "$cbs" else self._read(request)
        back = self.connection.partner(self)
        if answer is None or back is None:
            return
        status, value = answer
        application = {"status-code": status, "status-description": "from the stand-in"}
        message = reply(correlation_id=request.message_id, application=application, value=value)
        self.connection.deliver(back, message)

    def _token(self, token: Any) -> tuple[int, Any] | None:
        server = self.connection.server
        server.tokens.append(token.decode() if isinstance(token, bytes) else str(token))
        if server.struck(HubFault.NO_CBS):
            return None
        refusal = server.struck(HubFault.CBS_STATUS)
        return (refusal.status if refusal else 202), None

    def _read(self, request: Any) -> tuple[int, Any] | None:
        server, asked = self.connection.server, request.application_properties
        if server.struck(HubFault.NO_MANAGEMENT):
            return None
        if refusal := server.struck(HubFault.MANAGEMENT_STATUS):
            return refusal.status, None
        name, logs = asked["name"], server.hub(asked["name"])
        if "partition" not in asked:
            return 200, {
                "name": name,
                "type": "com.microsoft:eventhub",
                "created_at": Timestamp(0),
                "partition_count": len(logs),
                "partition_ids": [str(number) for number in range(len(logs))],
            }
        log = logs[int(asked["partition"])].messages
        return 200, {
            "name": name,
            "type": "com.microsoft:partition",
            "partition": asked["partition"],
            "begin_sequence_number": 0,
            "last_enqueued_sequence_number": len(log) - 1,
            "last_enqueued_offset": str(len(log) - 1),
            "last_enqueued_time_utc": Timestamp(log[-1][1] if log else 0),
            "is_partition_empty": not log,
        }
