"""MQTT 5 properties of messages, and the size of the packets with them. It sends nothing."""

from __future__ import annotations

from functools import lru_cache

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from sinks.kinds.mqtt.messages import Message


def publish_properties(message: Message) -> Properties:
    """Return the properties of a PUBLISH (MQTT 5, 3.3.2.3)."""
    if message.correlation is None:
        return _common(message.content_type, message.expiry)
    return properties_of(PacketTypes.PUBLISH, message)


def publish_size(message: Message, properties: Properties | None) -> int:
    """Return the size of the PUBLISH packet at QoS 1 in bytes (MQTT 5, 3.3), with its
    fixed header.
    """
    rest = 2 + len(message.topic.encode()) + 2 + len(message.payload)
    if properties is not None:
        rest += len(properties.pack())  # type: ignore[no-untyped-call]
    # MQTT 5, 1.5.5: seven bits of the length to a byte.
    return 1 + max(1, -(-rest.bit_length() // 7)) + rest


class _Packed(Properties):
    """Properties whose bytes are made once; paho would make them again for each publish."""

    def __init__(self, made: Properties) -> None:
        # Around the setter of the base, which takes names of MQTT's properties only.
        self.__dict__.update(made.__dict__)
        self.__dict__["_bytes"] = made.pack()  # type: ignore[no-untyped-call]

    def pack(self) -> bytes:
        """Return the bytes, which are made once."""
        packed: bytes = self.__dict__["_bytes"]
        return packed


@lru_cache(maxsize=16)
def _common(content_type: str, expiry: int | None) -> Properties:
    # Making and packing them takes half of a publish's time, and nearly all messages share theirs.
    message = Message(topic="", payload=b"", content_type=content_type, expiry=expiry)
    return _Packed(properties_of(PacketTypes.PUBLISH, message))


def properties_of(packet: int, message: Message) -> Properties:
    """Return the properties of a message, in a PUBLISH or as a will (MQTT 5, 3.1.3.2)."""
    made = Properties(packet)  # type: ignore[no-untyped-call]
    made.ContentType = message.content_type
    if message.expiry is not None:
        made.MessageExpiryInterval = message.expiry
    if message.correlation is not None:
        made.CorrelationData = message.correlation
    return made
