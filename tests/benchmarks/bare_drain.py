"""The raw library, sending what the bridge sends: the same bytes in the same order, acknowledged.

Run as a program: `bare_drain.py mqtt|webhook|eventhub ADDRESS FILE`, where each line of the file is
a record. It reads no store: everything is in memory before the first is sent.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

BATCH = 100
"""Records to a batch of Event Hubs, as the bridge has them."""


def mqtt(port: str, bodies: Sequence[bytes]) -> None:
    """Publish at QoS 1, as many in flight as paho likes."""
    from paho.mqtt.client import Client  # noqa: PLC0415
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion  # noqa: PLC0415
    from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415
    from paho.mqtt.properties import Properties  # noqa: PLC0415

    said = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    said.ContentType, said.MessageExpiryInterval = "application/cloudevents+json", 7 * 24 * 3600
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect("127.0.0.1", int(port))
    client.loop_start()
    topic = "bare/v1/default/vm/02aab8a4-74ef-476e-8182-f6d2ba4166a6/event"
    sent = [client.publish(topic, body, qos=1, properties=said) for body in bodies]
    for each in sent:
        each.wait_for_publish(30)


def webhook(url: str, bodies: Sequence[bytes]) -> None:
    """Post one after the other: any other way would lose the order."""
    import requests  # noqa: PLC0415

    session = requests.Session()
    headers = {"Content-Type": "application/cloudevents+json"}
    for body in bodies:
        session.post(url, body, headers=headers, timeout=10).raise_for_status()


def eventhub(connection_string: str, bodies: Sequence[bytes]) -> None:
    """Send batches under one partition key, each message with the bridge's properties."""
    from azure.eventhub import EventHubProducerClient  # noqa: PLC0415

    from sinks.kinds.eventhub.message import to_event  # noqa: PLC0415  # the same messages
    from wire.record import read_record  # noqa: PLC0415

    records = [read_record(body) for body in bodies]
    producer = EventHubProducerClient.from_connection_string(connection_string)
    with producer:
        for start in range(0, len(records), BATCH):
            batch = producer.create_batch(partition_key="02aab8a4-74ef-476e-8182-f6d2ba4166a6")
            for record in records[start : start + BATCH]:
                batch.add(to_event(record))
            producer.send_batch(batch, timeout=10)


if __name__ == "__main__":
    kind, address, file = sys.argv[1:]
    lines = Path(file).read_bytes().splitlines()
    {"mqtt": mqtt, "webhook": webhook, "eventhub": eventhub}[kind](address, lines)
