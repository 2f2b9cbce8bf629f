"""`make bench`: latency, idle cost and start-up, side by side with the smallest loop of one's own.

It prints what it measures and writes `docs/benchmarks.json`, from which the README's table is made.
Everything runs on loopback and ends by itself.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(Path(__file__).parent)]

import measure  # noqa: E402
from mosquitto import Mosquitto  # noqa: E402

from bridge.simulator import SimulatedEvent, Simulator  # noqa: E402

CHANGES: Final = 200
IDLE_SECONDS: Final = 20.0
STARTS: Final = 7
IMPORTS: Final = (
    "import time, apscheduler.schedulers.background, paho.mqtt.client, pydantic_settings; "
    "import requests; time.sleep(60)"
)
SEB: Final = [sys.executable, "-m", "bridge"]
BARE: Final = [sys.executable, str(Path(__file__).parent / "bare_loop.py")]


def main() -> None:
    """Measure all of it and write the figures."""
    with tempfile.TemporaryDirectory() as scratch, Mosquitto(Path(scratch)) as broker:
        figures = {
            "machine": measure.machine(),
            "latency": latency(Path(scratch), broker),
            "idle": idle(Path(scratch), broker),
            "start": start(Path(scratch)),
        }
    path = ROOT / "docs" / "benchmarks.json"
    path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(figures, indent=2))


def latency(scratch: Path, broker: Mosquitto) -> dict[str, float]:
    """Milliseconds from IMDS serving a change to the subscriber having its record."""
    ours = deliveries(broker, "seb/#", lambda url: bridge(url, scratch / "latency", broker, "0.1"))
    bare = deliveries(
        broker,
        "bare/#",
        lambda url: measure.running([*BARE, url, str(broker.port), "0.1"]),
    )
    return {
        "median_ms": round(statistics.median(ours), 2),
        "p99_ms": round(statistics.quantiles(ours, n=100)[98], 2),
        "bare_median_ms": round(statistics.median(bare), 2),
        "ratio": round(statistics.median(ours) / statistics.median(bare), 2),
    }


def deliveries(broker: Mosquitto, topics: str, start: Callable[[str], object]) -> list[float]:
    """The delays of so many changes, in milliseconds."""
    arrived: dict[str, float] = {}
    with Simulator() as simulator, listening(broker, topics, arrived), start(simulator.url):  # type: ignore[attr-defined]
        if not simulator.wait_for_gets(3, timeout=20):
            raise TimeoutError("the poller did not start")
        time.sleep(1.0)  # its sink has connected
        served: dict[str, float] = {}
        for number in range(CHANGES):
            event = simulator.announce(soon(number))
            simulator.wait_until_served(timeout=10)
            served[event.event_id] = simulator.history[-1].first_served or 0.0
            wait_for(lambda: event.event_id in arrived)  # noqa: B023
            simulator.end_event(event.event_id)
            simulator.wait_until_served(timeout=10)
        return [1000 * (arrived[event_id] - at) for event_id, at in served.items()]


def soon(number: int) -> SimulatedEvent:
    """An event for this VM in a quarter of an hour."""
    return SimulatedEvent(
        event_type="Freeze",
        resources=("vm-0",),
        not_before=datetime.now(UTC) + timedelta(minutes=15, seconds=number),
    )


def wait_for(holds: Callable[[], bool]) -> None:
    """Wait without disturbing what is measured; raises `TimeoutError` after 10 s."""
    deadline = time.monotonic() + 10
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("a record did not arrive")
        time.sleep(0.005)


@contextmanager
def listening(broker: Mosquitto, topics: str, arrived: dict[str, float]) -> Iterator[None]:
    """A subscriber that notes when it first had a record of each event."""
    from paho.mqtt.client import CallbackAPIVersion, Client, MQTTProtocolVersion  # noqa: PLC0415

    def on_message(client: object, data: object, message: object) -> None:
        now = time.monotonic()
        if not message.topic.endswith("/event"):  # type: ignore[attr-defined]
            return
        body = json.loads(message.payload)  # type: ignore[attr-defined]
        event_id = body.get("EventId") or body.get("data", {}).get("event", {}).get("eventId")
        if event_id:
            arrived.setdefault(event_id, now)

    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.on_message = on_message
    client.connect(broker.host, broker.port)
    client.subscribe(topics, qos=1)
    client.loop_start()
    try:
        yield
    finally:
        client.disconnect()
        client.loop_stop()


def bridge(url: str, state: Path, broker: Mosquitto, interval: str):  # noqa: ANN201
    """A bridge with the MQTT sink, as a process."""
    return measure.running(
        [*SEB, "run"],
        {
            "SEB_IMDS__URL": url,
            "SEB_STATE_DIR": str(state),
            "SEB_POLL_INTERVAL": interval,
            "SEB_SINK__MQTT__HOST": broker.host,
            "SEB_SINK__MQTT__PORT": str(broker.port),
        },
    )


def idle(scratch: Path, broker: Mosquitto) -> dict[str, float]:
    """Cost of one poll a second while nothing happens."""
    with Simulator() as simulator:
        with bridge(simulator.url, scratch / "idle", broker, "1") as process:
            simulator.wait_for_gets(5, timeout=20)
            cpu, memory = measure.idle(process.pid, IDLE_SECONDS)
        with measure.running([*BARE, simulator.url, "0", "1"]) as process:
            simulator.wait_for_gets(simulator.gets + 3, timeout=20)
            bare_cpu, bare_memory = measure.idle(process.pid, IDLE_SECONDS)
    with measure.running([sys.executable, "-c", IMPORTS]) as process:
        time.sleep(3)
        imports_memory = measure.resident_mib(process.pid)
    return {
        "cpu_percent": round(cpu, 3),
        "memory_mib": round(memory, 1),
        "bare_cpu_percent": round(bare_cpu, 3),
        "bare_memory_mib": round(bare_memory, 1),
        "imports_memory_mib": round(imports_memory, 1),
    }


def start(scratch: Path) -> dict[str, float]:
    """Seconds from the start of the process to its first poll, and of `seb version`."""
    first_polls = []
    for number in range(STARTS):
        with Simulator() as simulator:
            started = time.monotonic()
            environment = {
                "SEB_IMDS__URL": simulator.url,
                "SEB_STATE_DIR": str(scratch / f"start-{number}"),
                "SEB_SINK__FILE__PATH": str(scratch / "records"),
            }
            with measure.running([*SEB, "run"], environment):
                simulator.wait_until_served(timeout=20)
                first_polls.append((simulator.history[0].first_served or 0.0) - started)
    versions = []
    for _ in range(STARTS):
        started = time.monotonic()
        with measure.running([*SEB, "version"]) as process:
            process.wait(20)
            versions.append(time.monotonic() - started)
    return {
        "first_poll_s": round(statistics.median(first_polls), 3),
        "version_s": round(statistics.median(versions), 3),
    }


if __name__ == "__main__":
    main()
