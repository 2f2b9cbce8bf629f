"""The smallest loop that a user would write instead: requests and paho, no store, no promise.

Run as a program: `bare_loop.py IMDS_URL MQTT_PORT INTERVAL`; port 0 polls only.
"""

import json
import sys
import time
import uuid

import requests


def main(url: str, port: int, interval: float) -> None:
    """Poll for ever, and publish what a new document holds."""
    session = requests.Session()
    session.trust_env = False
    session.headers["Metadata"] = "true"
    publish = connect(port) if port else None
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
                if publish:
                    publish(json.dumps({"id": str(uuid.uuid4()), **event}).encode())
        time.sleep(max(0.0, interval - (time.monotonic() - started)))


def connect(port: int):  # noqa: ANN201  # a benchmark's peer, kept as small as a user's
    """What publishes a payload and waits for the broker's word."""
    from paho.mqtt.client import CallbackAPIVersion, Client, MQTTProtocolVersion  # noqa: PLC0415

    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    return lambda payload: client.publish("bare/event", payload, qos=1).wait_for_publish(5)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
