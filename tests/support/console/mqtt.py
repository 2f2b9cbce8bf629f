"""A publisher that stands in for the bridges of a fleet at a real broker."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from support.console.records import FakeVm
from support.mqtt.mosquitto import Mosquitto

from wire.record import Record


class MqttFleet:
    """One connection over which every VM's messages go."""

    def __init__(self, broker: Mosquitto, *, port: int | None = None) -> None:
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.max_queued_messages_set(0)
        self._client.max_inflight_messages_set(200)
        self._client.connect(broker.host, port or broker.port)
        self._client.loop_start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def say(self, vm: FakeVm, *records: Record) -> None:
        """Publish records of a VM; returns once the broker has them."""
        leaves = ["receipt" if each.type == "seb.approval.v1" else "event" for each in records]
        self._wait(
            self._send(vm.topic(leaf), record.body)
            for leaf, record in zip(leaves, records, strict=True)
        )

    def retain(self, vm: FakeVm, leaf: str, payload: bytes) -> None:
        """Publish a retained document of a VM."""
        self._wait([self._send(vm.topic(leaf), payload, retain=True)])

    def publish(self, topic: str, payload: bytes, *, expiry: int | None = None) -> None:
        """Publish anything."""
        self._wait([self._send(topic, payload, expiry=expiry)])

    def _send(
        self, topic: str, payload: bytes, *, retain: bool = False, expiry: int | None = None
    ) -> MQTTMessageInfo:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if expiry is not None:
            properties.MessageExpiryInterval = expiry
        return self._client.publish(topic, payload, 1, retain=retain, properties=properties)

    @staticmethod
    def _wait(sent: Iterable[MQTTMessageInfo]) -> None:
        for each in list(sent):
            each.wait_for_publish(30)
            assert each.is_published()
