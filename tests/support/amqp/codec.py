"""The AMQP 1.0 type system, as far as the stand-in hub needs it; it must never guess at bytes.

Written from the OASIS specification (part 1, types) and not on the SDK's own codec, so that a
mistake on one side cannot cancel a mistake on the other.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID


class Symbol(str):
    """A name in ASCII, a type of its own on the wire."""

    __slots__ = ()


class UInt(int):
    """32 bits without a sign: handles, windows, credits."""


class UShort(int):
    """16 bits without a sign: channel numbers."""


class UByte(int):
    """8 bits without a sign: settle modes, SASL outcomes."""


class ULong(int):
    """64 bits without a sign: message sizes."""


class Timestamp(int):
    """Milliseconds since 1970 in UTC."""


class Symbols(tuple[str, ...]):
    """An array of symbols."""

    __slots__ = ()


@dataclass(frozen=True)
class Described:
    """A value with the number that says what it is: a frame, a section, an outcome."""

    code: int | Symbol
    value: Any


def encode(value: Any) -> bytes:
    """The bytes of a value. Raises `TypeError` for one without a type on the wire."""
    if isinstance(value, Described):
        # The SDK reads the code of a frame or a section at a fixed place: one byte after 0x53.
        small = isinstance(value.code, int) and value.code < 256
        code = b"\x53" + bytes([int(value.code)]) if small else encode(value.code)
        return b"\x00" + code + encode(value.value)
    for kind, encoder in _ENCODERS:
        if isinstance(value, kind):
            return encoder(value)
    message = f"no AMQP type for {type(value).__name__}"
    raise TypeError(message)


def _variable(code: int, data: bytes) -> bytes:
    return bytes([code]) + struct.pack(">I", len(data)) + data


def _compound(code: int, items: Sequence[Any]) -> bytes:
    body = b"".join(encode(item) for item in items)
    return bytes([code]) + struct.pack(">II", len(body) + 4, len(items)) + body


def _symbols(names: Symbols) -> bytes:
    body = b"".join(struct.pack(">I", len(name)) + name.encode("ascii") for name in names)
    return b"\xf0" + struct.pack(">II", len(body) + 5, len(names)) + b"\xb3" + body


# First match wins, so a subclass stands before its base.
_ENCODERS: tuple[tuple[type, Callable[[Any], bytes]], ...] = (
    (type(None), lambda _: b"\x40"),
    (bool, lambda value: b"\x41" if value else b"\x42"),
    (UInt, lambda value: b"\x70" + struct.pack(">I", value)),
    (UShort, lambda value: b"\x60" + struct.pack(">H", value)),
    (UByte, lambda value: b"\x50" + struct.pack(">B", value)),
    (ULong, lambda value: b"\x80" + struct.pack(">Q", value)),
    (Timestamp, lambda value: b"\x83" + struct.pack(">q", value)),
    (int, lambda value: b"\x81" + struct.pack(">q", value)),
    (Symbol, lambda value: _variable(0xB3, value.encode("ascii"))),
    (str, lambda value: _variable(0xB1, value.encode())),
    (bytes, lambda value: _variable(0xB0, value)),
    (UUID, lambda value: b"\x98" + value.bytes),
    (Symbols, _symbols),
    (list, lambda value: _compound(0xD0, value)),
    (dict, lambda value: _compound(0xD1, [part for pair in value.items() for part in pair])),
)


class AmqpReader:
    """Reads values off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def rest(self) -> bytes:
        """What has not been read."""
        return self.data[self.at :]

    def value(self) -> Any:
        """The next value. Raises `ValueError` on bytes that are no value."""
        return self._of(self._take(1)[0])

    def _take(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if len(part) != count:
            message = "the bytes end inside a value"
            raise ValueError(message)
        self.at += count
        return part

    def _of(self, code: int) -> Any:
        if code == 0x00:
            return Described(self.value(), self.value())
        if code in _CONSTANTS:
            constant = _CONSTANTS[code]
            return constant() if callable(constant) else constant
        if code in _FIXED:
            shape, kind = _FIXED[code]
            return kind(struct.unpack(shape, self._take(struct.calcsize(shape)))[0])
        if code == 0x98:
            return UUID(bytes=self._take(16))
        if code in _VARIABLE:
            width, decoder = _VARIABLE[code]
            return decoder(self._take(self._number(width)))
        if code in _COMPOUND:
            return self._compound(code, _COMPOUND[code])
        message = f"no AMQP type has the code {code:#04x}"
        raise ValueError(message)

    def _number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big")

    def _compound(self, code: int, width: int) -> Any:
        self._number(width)  # the size in bytes, which the count makes redundant
        count = self._number(width)
        if code & 0xF0 in (0xE0, 0xF0):
            inner = self._take(1)[0]
            return [self._of(inner) for _ in range(count)]
        items = [self.value() for _ in range(count)]
        return dict(zip(items[::2], items[1::2], strict=True)) if code & 0x0F == 1 else items


_CONSTANTS: dict[int, Any] = {
    0x40: None,
    0x41: True,
    0x42: False,
    0x43: UInt,
    0x44: ULong,
    0x45: list,
}
_FIXED: dict[int, tuple[str, Callable[[Any], Any]]] = {
    0x50: (">B", UByte),
    0x51: (">b", int),
    0x52: (">B", UInt),
    0x53: (">B", ULong),
    0x54: (">b", int),
    0x55: (">b", int),
    0x56: (">?", bool),
    0x60: (">H", UShort),
    0x61: (">h", int),
    0x70: (">I", UInt),
    0x71: (">i", int),
    0x72: (">f", float),
    0x80: (">Q", ULong),
    0x81: (">q", int),
    0x82: (">d", float),
    0x83: (">q", Timestamp),
}
_VARIABLE: dict[int, tuple[int, Callable[[bytes], Any]]] = {
    0xA0: (1, bytes),
    0xA1: (1, bytes.decode),
    0xA3: (1, lambda data: Symbol(data.decode("ascii"))),
    0xB0: (4, bytes),
    0xB1: (4, bytes.decode),
    0xB3: (4, lambda data: Symbol(data.decode("ascii"))),
}
_COMPOUND = {0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4, 0xE0: 1, 0xF0: 4}
