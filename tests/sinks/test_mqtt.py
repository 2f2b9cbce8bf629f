"""The MQTT sink against a real Mosquitto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mosquitto import Mosquitto
from mqtt_subscriber import Subscriber

from sinks.mqtt import MqttSink
from sinks.testing import SAMPLE_VM, SinkContract

BASE = f"seb/v1/default/vm/{SAMPLE_VM.vm_id}"
PASSWORD = "correct horse battery staple"


class Broker:
    """A Mosquitto as the far end of a sink."""

    def __init__(self, broker: Mosquitto, seen: Subscriber) -> None:
        self.broker = broker
        self._seen = seen

    @property
    def settings(self) -> Mapping[str, Any]:
        return {
            "host": self.broker.host,
            "port": str(self.broker.port),
            "username": "bridge",
            "password": PASSWORD,
        }

    @property
    def secrets(self) -> Sequence[str]:
        return [PASSWORD]

    def received(self) -> Sequence[bytes]:
        return self._seen.payloads(f"{BASE}/event")

    def stop(self) -> None:
        self.broker.stop()

    def start(self) -> None:
        self.broker.start()


class TestContract(SinkContract):
    sink_class = MqttSink

    @pytest.fixture
    def destination(self, tmp_path: Path) -> Iterator[Broker]:
        with (
            Mosquitto(tmp_path / "broker", users={"bridge": PASSWORD}) as broker,
            broker.subscriber("seb/#") as seen,
        ):
            yield Broker(broker, seen)
