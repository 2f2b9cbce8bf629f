"""The raw libraries, taking in what the console takes in: they receive, and read the JSON.

Run as `python -m tests.benchmarks.bare_intake mqtt|eventhub|webhook ADDRESS COUNT`. It prints
records a second, from the first to the last; a webhook's server prints its port first. With a
COUNT of 0 the MQTT client only makes its session at the broker, and ends.
"""

import asyncio
import json
import os
import socket
import sys
import time
from typing import Any


class Count:
    """Ends the process when so many have come."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._got = 0
        self._begun = 0.0

    def one(self, body: bytes) -> None:
        """A record has come."""
        json.loads(body)
        self._begun = self._begun or time.monotonic()
        self._got += 1
        if self._got == self._wanted:
            print((self._got - 1) / (time.monotonic() - self._begun), flush=True)
            os._exit(0)


def mqtt(port: str, wanted: int) -> None:
    """Subscribe at QoS 1 and acknowledge each message oneself, as the console does.

    The same number may be in flight as with the console: Mosquitto alone would send 20.
    """
    from paho.mqtt.client import Client, MQTTMessage  # noqa: PLC0415
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion  # noqa: PLC0415
    from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415
    from paho.mqtt.properties import Properties  # noqa: PLC0415

    from console.ingest.mqtt import IN_FLIGHT  # noqa: PLC0415

    count = Count(wanted)
    client = Client(
        CallbackAPIVersion.VERSION2,
        client_id="bare",
        protocol=MQTTProtocolVersion.MQTTv5,
        manual_ack=True,
    )

    def taken(_client: Client, _data: Any, message: MQTTMessage) -> None:
        count.one(message.payload)
        client.ack(message.mid, message.qos)

    client.on_connect = lambda *_: client.subscribe("seb/v1/+/vm/+/event", 1)
    client.on_message = taken
    if not wanted:
        client.on_subscribe = lambda *_: client.disconnect()
    asked = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    asked.SessionExpiryInterval = 3600
    asked.ReceiveMaximum = IN_FLIGHT
    client.connect("127.0.0.1", int(port), 60, clean_start=False, properties=asked)
    client.loop_forever()


def eventhub(connection_string: str, wanted: int) -> None:
    """Receive every partition from its start, in batches as large as the console's."""
    from azure.eventhub.aio import EventHubConsumerClient  # noqa: PLC0415

    count = Count(wanted)

    async def on_batch(_context: Any, events: list[Any]) -> None:
        for event in events:
            count.one(b"".join(event.body))

    async def receive() -> None:
        client = EventHubConsumerClient.from_connection_string(
            connection_string, consumer_group="$Default"
        )
        await client.receive_batch(
            on_batch, max_batch_size=300, max_wait_time=5, starting_position="-1"
        )

    asyncio.run(receive())


def webhook(_address: str, wanted: int) -> None:
    """Be uvicorn with an application that reads the body and answers 204."""
    import uvicorn  # noqa: PLC0415

    count = Count(wanted)

    async def application(_scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        count.one(body)

    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(application, log_config=None, access_log=False, lifespan="off")
    asyncio.run(uvicorn.Server(config).serve([listener]))


if __name__ == "__main__":
    kind, address, number = sys.argv[1:]
    {"mqtt": mqtt, "eventhub": eventhub, "webhook": webhook}[kind](address, int(number))
