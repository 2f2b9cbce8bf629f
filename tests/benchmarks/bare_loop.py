"""The smallest loop that a user would write instead: poll, and send what a new document holds.

No store, no order kept over a failure, no promise. Run as a program:
`bare_loop.py IMDS_URL SECONDS [mqtt PORT | webhook URL | eventhub CONNECTION_STRING]`; without a
destination it only polls.
"""

import json
import sys
import time
import uuid
from collections.abc import Callable

import requests

Send = Callable[[bytes], object]


def main(url: str, interval: str, kind: str = "", address: str = "") -> None:
    """Poll for ever, and send what a new document holds."""
    send = {"mqtt": mqtt, "webhook": webhook, "eventhub": eventhub}[kind](address) if kind else None
    session = requests.Session()
    session.trust_env = False
    session.headers["Metadata"] = "true"
    seen = None
    while True:
        started = time.monotonic()
        answer = session.get(
            f"{url}/metadata/scheduledevents", params={"api-version": "2020-07-01"}, timeout=5
        )
        document = answer.json()
        if document["DocumentIncarnation"] != seen:
            seen = document["DocumentIncarnation"]
            for event in document["Events"]:
                if send:
                    send(json.dumps({"id": str(uuid.uuid4()), **event}).encode())
        time.sleep(max(0.0, float(interval) - (time.monotonic() - started)))


def mqtt(port: str) -> Send:
    """What publishes a payload and waits for the broker's word."""
    from paho.mqtt.client import Client  # noqa: PLC0415
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion  # noqa: PLC0415

    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect("127.0.0.1", int(port))
    client.loop_start()
    return lambda payload: client.publish("bare/event", payload, qos=1).wait_for_publish(5)


def webhook(url: str) -> Send:
    """What posts a payload."""
    session = requests.Session()
    headers = {"Content-Type": "application/json"}
    return lambda payload: session.post(url, payload, headers=headers, timeout=5).raise_for_status()


def eventhub(connection_string: str) -> Send:
    """What sends a payload to a hub."""
    from azure.eventhub import EventData, EventHubProducerClient  # noqa: PLC0415

    producer = EventHubProducerClient.from_connection_string(connection_string)
    return lambda payload: producer.send_batch([EventData(payload)], timeout=5)


if __name__ == "__main__":
    main(*sys.argv[1:])
