"""A paho client for taking in many messages: it reads ahead of paho, and acknowledges many at once.

Paho asks the system for a packet in four reads, each of which gives up the interpreter, reads every
property of it, and sends each acknowledgement in a write of its own. Here PUBLISH packets that are
in memory whole are read at once; every other packet is paho's, and so is the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from paho.mqtt.client import PUBACK, Client, MQTTMessage
from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion

from console.sources.packets import Publish, read_publish
from sinks.mqtt.tunnel import TunnelClient

_CHUNK: Final = 131_072
_MOST_PACKETS: Final = 256
"""Packets in a row, before what is to be sent gets its turn."""
_SUCCESS: Final = MQTTErrorCode.MQTT_ERR_SUCCESS


class ReadAhead:
    """A connection that is read in large parts and handed out in small ones."""

    def __init__(self, connection: Any) -> None:
        self._socket = connection
        self._data = b""
        self._at = 0

    def recv(self, size: int) -> bytes:
        """As a socket's."""
        if self._at == len(self._data):
            self._data, self._at = b"", 0
            self._data = self._socket.recv(_CHUNK)
        part = self._data[self._at : self._at + size]
        self._at += len(part)
        return part

    @property
    def ahead(self) -> int:
        """Bytes that are in memory."""
        return len(self._data) - self._at

    def pending(self) -> int:
        """Bytes that `select` does not see."""
        inner = getattr(self._socket, "pending", None)
        return self.ahead + (inner() if inner is not None else 0)

    def publish(self, *, has_properties: bool) -> Publish | None:
        """The next packet, if it is a PUBLISH and in memory whole."""
        if self._at == len(self._data):
            return None
        found = read_publish(self._data, self._at, has_properties=has_properties)
        if found is not None:
            self._at = found.end
        return found

    def __getattr__(self, name: str) -> Any:
        """Everything else is the connection's."""
        return getattr(self._socket, name)


class Receiver(TunnelClient):
    """As its base, for one that reads much; `taken` gets every message."""

    taken: Callable[[Publish], None] | None = None

    def _create_socket(self) -> Any:
        self.on_message = _from_paho
        return ReadAhead(super()._create_socket())

    def receive(self, timeout: float) -> MQTTErrorCode:
        """As `loop`, and every further packet that is in memory already."""
        code = self.loop(timeout)
        connection, taken = self.socket(), self.taken
        has_properties = self._protocol == MQTTProtocolVersion.MQTTv5
        for _ in range(_MOST_PACKETS):
            if code != _SUCCESS or not isinstance(connection, ReadAhead) or not connection.ahead:
                break
            is_between = self._in_packet["command"] == 0
            packet = connection.publish(has_properties=has_properties) if is_between else None
            if packet is None:
                code = self.loop_read()
            elif taken is not None:
                taken(packet)
        return code

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """As `ack` for messages of QoS 1, in one write; from any thread."""
        packets = b"".join(b"\x40\x02" + number.to_bytes(2, "big") for number in numbers)
        if packets:
            self._packet_queue(PUBACK, packets, 0, 1)


def _from_paho(client: Client, _data: Any, message: MQTTMessage) -> None:
    """A message that paho has read."""
    assert isinstance(client, Receiver)  # noqa: S101  # it is the callback of no other
    if client.taken is not None:
        client.taken(
            Publish(
                topic=message.topic,
                payload=bytes(message.payload),
                retained=message.retain,
                number=message.mid if message.qos else None,
                expiry=getattr(message.properties, "MessageExpiryInterval", None),
            )
        )
