"""Many messages at once are each stored once, over every transport and protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.console.mqtt import MqttFleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto
from support.ports import free_port
from support.sinks.throwaway_ca import ThrowawayCa
from support.sinks.websocket_gate import WebSocketGate

from wire.strictjson import canonical_json


@contextmanager
def reached(way: str, directory: Path) -> Iterator[tuple[MqttFleet, dict[str, str]]]:
    """A publisher at a broker, and the settings of a source that reads the broker in one of several
    ways.
    """
    if way == "tls":
        ca, plain = ThrowawayCa(directory / "ca"), free_port()
        extra = [f"listener {plain} 127.0.0.1", "allow_anonymous true"]
        with (
            Mosquitto(directory / "broker", tls=ca.server(), extra=extra) as broker,
            MqttFleet(broker, port=plain) as fleet,
        ):
            yield fleet, {"PORT": str(broker.port), "TLS__CA": str(ca.cert)}
        return
    with (
        Mosquitto(directory / "broker") as broker,
        WebSocketGate(broker.port) as gate,
        MqttFleet(broker) as fleet,
    ):
        yield (
            fleet,
            {
                "tcp": {"PORT": str(broker.port)},
                "3.1.1": {"PORT": str(broker.port), "PROTOCOL": "3.1.1"},
                "websocket": {"PORT": str(gate.port), "TRANSPORT": "websocket"},
            }[way],
        )


@pytest.mark.parametrize("way", ["tcp", "3.1.1", "tls", "websocket"])
def test_a_burst_of_small_and_large_records_is_taken_in_once(way: str, tmp_path: Path) -> None:
    """Packets that end in the middle of a read, and one of 250 kB, are stored as they were sent,
    and no acknowledged one comes again.
    """
    vm = FakeVm(name="burst")
    records = [vm.event(f"E{number}") for number in range(600)]
    large = json.loads(vm.event("E-LARGE").body)
    large["data"]["raw"] = "x" * 250_000
    with reached(way, tmp_path) as (fleet, fields):
        told = {"KIND": "mqtt", "HOST": "127.0.0.1", **fields}
        settings = {f"SOURCE__BROKER__{name}": value for name, value in told.items()}
        with ConsoleProcess(tmp_path / "console", **settings) as console:
            eventually(lambda: "source_connected" in console.log, what="the connection")
            fleet.say(vm, *records[:300])
            fleet.publish(vm.topic(), canonical_json(large))
            fleet.say(vm, *records[300:])
            expected = {f"E{number}" for number in range(600)} | {"E-LARGE"}
            eventually(lambda: set(console.events(limit=1000)) == expected, what="all", timeout=120)
            assert console.vms()["burst"]["gaps"] == 0
            assert duplicates(console) == 0
            assert console.stop() == 0
            console.start()
            last = vm.event("E-LAST")
            fleet.say(vm, last)
            eventually(lambda: "E-LAST" in console.events(q="E-LAST"), what="the last")
            assert duplicates(console) == 0


def duplicates(console: ConsoleProcess) -> float:
    """Return how many records came in twice."""
    text = console.http.get(f"{console.url}/metrics", timeout=10).text
    start = "seb_console_duplicates_total "
    lines = text.splitlines()
    return next(float(line.removeprefix(start)) for line in lines if line.startswith(start))
