"""How a console with a fleet starts, answers and remembers, while heartbeats come in."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import requests
from support.console.mqtt import MqttFleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto

from console.config.settings import ConsoleSettings
from console.db.batches.batch_transaction import write_batch
from console.db.connection.opening import Database, database_url
from console.db.connection.transactions import next_change_number
from console.records.parse import parse_record
from tests.benchmarks.console_intake import make_console, program
from tests.benchmarks.measure import resident_mib
from tests.benchmarks.mqtt_feed import WHEN_SENT
from wire.record import Record

SIZES: Final = (100, 1000, 10_000)
PAST: Final = 100_000
"""Records about events that are over."""
HEARTBEATS: Final = 170
"""A second: those of 10,000 VMs, one a minute each."""
SECONDS: Final = 20.0
PATHS: Final[Mapping[str, str]] = {
    "overview": "/api/v1/overview",
    "events": "/api/v1/events",
    "vms": "/api/v1/vms",
    "fleet page": "/fleet",
    "first page": "/",
}
_OPEN: Final = 20
"""Events that are open; each names three VMs and is seen by twenty."""
_PUBLISHED: Final = 100
_BATCH: Final = 1000
_PAUSE: Final = 0.02
_SPARE: Final = 40.0
"""Seconds that heartbeats come in beside the asking."""


def measure(
    scratch: Path,
    *,
    sizes: Sequence[int] = SIZES,
    past: int = PAST,
    seconds: float = SECONDS,
    published: int = _PUBLISHED,
) -> dict[str, Any]:
    """By number of VMs: start, answers in milliseconds, publish to stream, memory."""
    return {str(size): _one(scratch / str(size), size, past, seconds, published) for size in sizes}


def _one(scratch: Path, size: int, past: int, seconds: float, published: int) -> dict[str, Any]:
    vms = [
        FakeVm(name=f"vm-{number:05}", scale_set=f"set-{number // 100}") for number in range(size)
    ]
    fill(scratch / "console", vms, past)
    with Mosquitto(scratch / "broker") as broker:
        settings = {"HOST": broker.host, "PORT": str(broker.port)}
        console = make_console(scratch / "console", "mqtt", None, **settings)
        begun = time.monotonic()
        console.start()
        started = time.monotonic() - begun
        try:
            eventually(lambda: "source_connected" in console.log, what="the connection", timeout=60)
            write_heartbeats(scratch / "beats", vms, int(HEARTBEATS * (seconds + _SPARE)))
            feed = ("mqtt_feed", str(broker.port), str(scratch / "beats"), str(HEARTBEATS))
            with program(*feed) as beating:
                answers = _ask(console, seconds)
                stream, memory = _publish(console, broker, vms, published)
                beating.kill()
        finally:
            console.kill()
    return {
        "start_seconds": round(started, 2),
        "answers": answers,
        "stream_ms": stream,
        "memory_mib": round(memory, 1),
    }


def fill(directory: Path, vms: Sequence[FakeVm], past: int) -> None:
    """A database with a heartbeat of every VM, past events, and some that are open."""
    directory.mkdir(parents=True)
    database = Database(database_url(ConsoleSettings(state_dir=directory)))
    database.open()
    try:
        batch: list[Record] = []
        for record in _records(vms, past):
            batch.append(record)
            if len(batch) == _BATCH:
                store(database, batch)
                batch = []
        store(database, batch)
    finally:
        database.close()


def _records(vms: Sequence[FakeVm], past: int) -> Iterator[Record]:
    now = datetime.now(UTC)
    yield from (vm.heartbeat(now=now - timedelta(days=30)) for vm in vms)
    for number in range(past // 3):
        vm = vms[number * 7 % len(vms)]
        at = now - timedelta(days=29) + timedelta(seconds=number)
        for transition in ("scheduled", "started", "ended"):
            yield vm.event(f"PAST-{number}", transition=transition, now=at)
    for number in range(_OPEN):
        first = number * 20 % max(1, len(vms) - 20)
        witnesses = vms[first : first + 20]
        names = [vm.name for vm in witnesses[:3]]
        yield from (vm.event(f"OPEN-{number}", resources=names) for vm in witnesses)


def store(database: Database, batch: Sequence[Record]) -> None:
    """Records come in from the source called feed, in one transaction."""
    items = [parse_record(record.body, source="feed", received_at=time.time()) for record in batch]
    with database.writing.begin() as connection:
        change_number = next_change_number(connection)
        write_batch(connection, items, change_number, now=time.time())


def write_heartbeats(file: Path, vms: Sequence[FakeVm], count: int) -> None:
    """So many heartbeats, of the VMs in turn, for `mqtt_feed`; each is made when it is sent."""
    beats = (vms[number % len(vms)] for number in range(count))
    file.write_bytes(
        b"\n".join(
            b"%s %s" % (vm.topic("event").encode(), vm.heartbeat(now=WHEN_SENT).body)
            for vm in beats
        )
    )


def _ask(console: ConsoleProcess, seconds: float) -> dict[str, dict[str, float]]:
    """Ask for each path in turn for so long, but twice at least: median and 95th percentile, ms."""
    found: dict[str, list[float]] = {name: [] for name in PATHS}
    until = time.monotonic() + seconds
    while time.monotonic() < until or min(map(len, found.values())) < 2:
        for name, path in PATHS.items():
            begun = time.perf_counter()
            console.http.get(console.url + path, timeout=30).raise_for_status()
            found[name].append(1000 * (time.perf_counter() - begun))
            time.sleep(_PAUSE)
    return {name: summary(times) for name, times in found.items()}


def summary(times: Sequence[float]) -> dict[str, float]:
    """The median and the 95th percentile."""
    return {
        "median": round(statistics.median(times), 2),
        "p95": round(statistics.quantiles(times, n=20)[-1], 2),
    }


def _publish(
    console: ConsoleProcess, broker: Mosquitto, vms: Sequence[FakeVm], count: int
) -> tuple[dict[str, float], float]:
    """Milliseconds from a publish to the open page's stream; and resident memory then."""
    sent: dict[str, float] = {}
    with _listening(console) as arrived, MqttFleet(broker) as fleet:
        for number in range(count):
            vm = vms[number % len(vms)]
            record = vm.event(f"LIVE-{number}")
            sent[f"LIVE-{number}"] = time.monotonic()
            fleet.say(vm, record)
            time.sleep(_PAUSE)
        eventually(lambda: set(sent) <= set(arrived), what="every event on the stream", timeout=60)
        assert console.process is not None
        memory = resident_mib(console.process.pid)
    return summary([1000 * (arrived[name] - at) for name, at in sent.items()]), memory


@contextmanager
def _listening(console: ConsoleProcess) -> Iterator[dict[str, float]]:
    """When an event was first on the stream, by its id."""
    arrived: dict[str, float] = {}
    address = f"{console.url}/api/v1/stream"
    with requests.get(address, stream=True, timeout=60) as response:
        lines = response.iter_lines(chunk_size=1)
        assert next(lines).startswith(b"retry")

        def listen() -> None:
            kind = b""
            with suppress(requests.RequestException, AttributeError):  # its end, and urllib3's word
                for line in lines:
                    if line.startswith(b"event: "):
                        kind = line[7:]
                    elif line.startswith(b"data: ") and kind == b"event":
                        arrived.setdefault(json.loads(line[6:])["eventId"], time.monotonic())

        threading.Thread(target=listen, daemon=True).start()
        yield arrived
        console.kill()  # ends the stream
