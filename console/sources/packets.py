"""Reads PUBLISH packets out of bytes (MQTT 5, 3.3; MQTT 3.1.1, 3.3); never touches a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_PUBLISH: Final = 3
_MOST_QOS: Final = 1
_EXPIRY: Final = 0x02
_VARYING: Final = 0x0B
_PAIR: Final = 0x26
_SIZES: Final = {0x01: 1, _EXPIRY: 4, 0x23: 2}
"""Bytes of the properties that have always as many."""
_TEXTS: Final = (0x03, 0x08, 0x09, _PAIR)
_MORE: Final = 0x80
_LONGEST: Final = 4
"""Bytes of a length."""


@dataclass(frozen=True, slots=True)
class Publish:
    """One message as it came in, and where the next packet begins."""

    topic: str
    payload: bytes
    retained: bool
    number: int | None = None
    """To acknowledge it by; None with QoS 0."""
    expiry: int | None = None
    """Seconds that are left of its life, as the broker counts them."""
    end: int = 0


def read_publish(data: bytes, at: int, *, has_properties: bool) -> Publish | None:
    """The PUBLISH of QoS 0 or 1 that begins there.

    None if it is not one, if it is not all there, or if it is malformed; MQTT 5 has properties.
    """
    header = data[at]
    qos = header >> 1 & 3
    if header >> 4 != _PUBLISH or qos > _MOST_QOS:
        return None
    try:
        length, place = _length(data, at + 1)
        end = place + length
        if end > len(data):
            return None
        start = place + 2
        place = start + int.from_bytes(data[place:start], "big")
        topic = data[start:place].decode()
        number = expiry = None
        if qos:
            number = int.from_bytes(data[place : place + 2], "big")
            place += 2
        if has_properties:
            length, place = _length(data, place)
            expiry = _expiry(data, place, place + length) if length else None
            place += length
    except (IndexError, ValueError):
        return None
    if place > end or not topic:
        return None
    return Publish(topic, data[place:end], bool(header & 1), number, expiry, end)


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length in one to four bytes, and the place behind it."""
    value = shift = 0
    for place in range(at, at + _LONGEST):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, place + 1
        shift += 7
    raise ValueError("a length of more than four bytes")


def _expiry(data: bytes, at: int, end: int) -> int | None:
    """The Message Expiry Interval among the properties, if there is one."""
    while at < end:
        kind, at = data[at], at + 1
        if kind == _EXPIRY:
            return int.from_bytes(data[at : at + 4], "big")
        if kind in _SIZES:
            at += _SIZES[kind]
        elif kind == _VARYING:
            _, at = _length(data, at)
        elif kind in _TEXTS:
            for _ in range(2 if kind == _PAIR else 1):
                at += 2 + int.from_bytes(data[at : at + 2], "big")
        else:
            raise ValueError(f"a property {kind} that a PUBLISH does not have")
    return None
