"""A message as it lies in the stand-in hub, and how it looks on the wire."""

from dataclasses import dataclass, field
from typing import Any

from support.amqp.codec import AmqpReader, Described, Symbol, Timestamp, encode

BATCH_FORMAT = 0x80013700
"""Event Hubs: the data sections of such a message are messages themselves."""

ANNOTATIONS, PROPERTIES, APPLICATION, DATA, VALUE = 0x72, 0x73, 0x74, 0x75, 0x77
PARTITION_KEY = Symbol("x-opt-partition-key")


@dataclass(frozen=True, kw_only=True)
class HubMessage:
    """One event of a hub, section by section."""

    body: bytes
    annotations: dict[str, Any] = field(default_factory=dict)
    application_properties: dict[str, Any] = field(default_factory=dict)
    properties: list[Any] = field(default_factory=list)
    value: Any = None

    def _property(self, place: int) -> Any:
        return self.properties[place] if place < len(self.properties) else None

    @property
    def message_id(self) -> Any:
        return self._property(0)

    @property
    def correlation_id(self) -> Any:
        return self._property(5)

    @property
    def content_type(self) -> Any:
        return self._property(6)

    @property
    def partition_key(self) -> str | None:
        return self.annotations.get(PARTITION_KEY)

    def encoded(self, *, sequence: int, enqueued: int) -> bytes:
        """The bytes that a consumer gets; `enqueued` in milliseconds since 1970."""
        annotations = {
            **self.annotations,
            Symbol("x-opt-sequence-number"): sequence,
            Symbol("x-opt-offset"): str(sequence),
            Symbol("x-opt-enqueued-time"): Timestamp(enqueued),
        }
        sections = [
            Described(ANNOTATIONS, annotations),
            Described(PROPERTIES, self.properties),
            Described(APPLICATION, self.application_properties),
            Described(DATA, self.body),
        ]
        return b"".join(encode(section) for section in sections)


def decode_sections(payload: bytes) -> list[Described]:
    """The sections of a message, in order."""
    reader, sections = AmqpReader(payload), []
    while reader.rest:
        sections.append(reader.value())
    return sections


def decode_message(payload: bytes) -> HubMessage:
    """A message that is not a batch."""
    found: dict[int | Symbol, Any] = {}
    body = b""
    for section in decode_sections(payload):
        if section.code == DATA:
            body += section.value
        else:
            found[section.code] = section.value
    return HubMessage(
        body=body,
        annotations=found.get(ANNOTATIONS, {}),
        application_properties=found.get(APPLICATION, {}),
        properties=found.get(PROPERTIES, []),
        value=found.get(VALUE),
    )


def unpack(payload: bytes, message_format: int) -> list[HubMessage]:
    """The events in a transfer: one, or those of a batch."""
    if message_format != BATCH_FORMAT:
        return [decode_message(payload)]
    return [
        decode_message(section.value)
        for section in decode_sections(payload)
        if section.code == DATA
    ]


def reply(*, correlation_id: Any, application: dict[str, Any], value: Any = None) -> bytes:
    """The bytes of an answer of `$cbs` or `$management`."""
    sections = [
        Described(PROPERTIES, [None] * 5 + [correlation_id]),
        Described(APPLICATION, application),
        Described(VALUE, value),
    ]
    return b"".join(encode(section) for section in sections)
