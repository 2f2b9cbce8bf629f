"""PUBLISH packets are read out of bytes as paho reads them, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt import _packet
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties, VariableByteIntegers

from console.sources.packets import Publish, read_publish

TOPIC = "seb/v1/default/vm/02aab8a4/event"
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


def packet(
    payload: bytes = b"body",
    *,
    topic: str = TOPIC,
    number: int | None = 7,
    properties: bytes | None = b"\0",
    header: int = 0x30,
) -> bytes:
    """A PUBLISH as a broker sends it."""
    named = topic.encode()
    body = len(named).to_bytes(2, "big") + named
    if number is not None:
        body, header = body + number.to_bytes(2, "big"), header | 2
    body += (properties or b"") + payload
    return bytes([header]) + VariableByteIntegers.encode(len(body)) + body


@given(
    payload=st.binary(max_size=300),
    topic=TEXTS,
    number=st.none() | st.integers(1, 65_535),
    expiry=st.none() | st.integers(0, 2**32 - 1),
    kind=st.none() | TEXTS,
    told=st.lists(st.tuples(TEXTS, TEXTS), max_size=3),
    alias=st.none() | st.integers(1, 65_535),
)
def test_it_reads_what_paho_reads(
    *,
    payload: bytes,
    topic: str,
    number: int | None,
    expiry: int | None,
    kind: str | None,
    told: list[tuple[str, str]],
    alias: int | None,
) -> None:
    """Topic, payload, number and expiry are paho's, whatever other properties there are."""
    made = Properties(PacketTypes.PUBLISH)
    for name, value in (
        ("MessageExpiryInterval", expiry),
        ("ContentType", kind),
        ("CorrelationData", None if kind is None else kind.encode()),
        ("TopicAlias", alias),
        ("PayloadFormatIndicator", None if alias is None else 1),
        ("SubscriptionIdentifier", alias),
    ):
        if value is not None:
            setattr(made, name, value)
    for pair in told:
        made.UserProperty = pair
    whole = packet(payload, topic=topic, number=number, properties=made.pack())
    found = read_publish(b"before" + whole + b"after", 6, has_properties=True)
    assert found is not None
    body = whole[len(whole) - VariableByteIntegers.decode(whole[1:])[0] :]
    theirs = _packet.decode_publish(whole[0], body, MQTTProtocolVersion.MQTTv5)
    assert (theirs.topic.decode(), theirs.payload) == (found.topic, found.payload)
    assert (theirs.mid or None) == found.number
    assert getattr(theirs.properties, "MessageExpiryInterval", None) == found.expiry
    assert len(whole) + 6 == found.end


def test_mqtt_3_has_no_properties() -> None:
    """The payload begins behind the number."""
    found = read_publish(packet(properties=None), 0, has_properties=False)
    assert found == Publish(TOPIC, b"body", False, 7, None, len(packet(properties=None)))


def test_the_retained_flag_is_read() -> None:
    """What a broker kept for a new subscriber says so."""
    found = read_publish(packet(header=0x31), 0, has_properties=True)
    assert found is not None
    assert found.retained


@pytest.mark.parametrize("missing", [1, 5, len(packet()) - 1])
def test_a_part_of_a_packet_is_left_alone(missing: int) -> None:
    """A packet that is not all there is read when the rest has come."""
    assert read_publish(packet()[:-missing], 0, has_properties=True) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\xd0\x00",
        packet(header=0x34),
        packet(topic=""),
        packet(topic="x" * 20)[:3] + b"\xff" * 40,
        b"\x30\xff\xff\xff\xff\x01",
        packet(properties=b"\x02\x77\x00"),
        packet(properties=b"\x7f", payload=b""),
    ],
    ids=["ping", "qos 2", "alias", "not text", "length", "unknown property", "beyond the end"],
)
def test_what_is_not_a_plain_publish_is_left_to_paho(data: bytes) -> None:
    """Other packets, and what is malformed, are not read here."""
    assert read_publish(data, 0, has_properties=True) is None
