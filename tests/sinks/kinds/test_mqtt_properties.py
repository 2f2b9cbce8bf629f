"""Properties that most messages share: the sink packs them once, to the bytes that paho would
make.
"""

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from sinks.kinds.mqtt.messages import Message
from sinks.kinds.mqtt.properties import publish_properties


def test_shared_properties_are_the_bytes_that_paho_would_make() -> None:
    """The properties that are packed in advance are the bytes that paho makes."""
    anew = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    anew.ContentType, anew.MessageExpiryInterval = "text/plain", 77  # type: ignore[attr-defined]
    message = Message(topic="a", payload=b"", content_type="text/plain", expiry=77)
    made = publish_properties(message)
    assert made.pack() == anew.pack()  # type: ignore[no-untyped-call]
    assert (made.ContentType, made.MessageExpiryInterval) == ("text/plain", 77)  # type: ignore[attr-defined]


def test_shared_properties_are_made_once_for_each_kind() -> None:
    """Messages of one kind share one object of properties, and those of another kind have
    another.
    """
    event = Message(topic="a", payload=b"1", expiry=77)
    same, other = Message(topic="b", payload=b"2", expiry=77), Message(topic="a", payload=b"")
    assert publish_properties(event) is publish_properties(same)
    assert publish_properties(event) is not publish_properties(other)
