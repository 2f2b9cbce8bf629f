"""Records a second that a console takes in, against the library that only receives and parses."""

from __future__ import annotations

import re
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal

from support.amqp.server import SHARED_KEY
from support.console.forked_process import executed
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto
from support.postgresql import PostgreSql

from tests.benchmarks import feeds
from tests.benchmarks.far_end import Kind
from tests.benchmarks.measure import PYTHON, ROOT, environment

Where = Literal["sqlite", "postgresql"]
WHERE: Final[Sequence[Where]] = ("sqlite", "postgresql")
RECORDS: Final[Mapping[Kind, int]] = {"mqtt": 24_000, "webhook": 8000, "eventhub": 8000}
ROUNDS: Final = 3
VMS: Final = 200
_PATIENCE: Final = 120.0
_LOOK_SECONDS: Final = 0.5
"""Seldom: a scrape goes through every VM and every open event, on the console's processors."""
_TAKEN: Final = re.compile(r'^seb_console_records_total\{source="feed"\} (\S+)$', re.MULTILINE)
_COMMITTED: Final = re.compile(r"^seb_console_last_commit_timestamp_seconds (\S+)$", re.MULTILINE)


def measure(
    scratch: Path,
    *,
    records: Mapping[Kind, int] = RECORDS,
    rounds: int = ROUNDS,
    where: Sequence[Where] = WHERE,
) -> dict[str, dict[str, float]]:
    """Medians of the rounds by source; in a round the raw library and each database take turns."""
    with ExitStack() as stack:
        urls: dict[Where, Callable[[], str | None]] = {"sqlite": lambda: None}
        if "postgresql" in where:
            server = stack.enter_context(PostgreSql())
            numbers = iter(range(1000))
            urls["postgresql"] = lambda: server.database(f"bench_{next(numbers)}")
        return {
            kind: _contest(kind, scratch / kind, count, rounds, {w: urls[w] for w in where})
            for kind, count in records.items()
        }


def _contest(
    kind: Kind,
    scratch: Path,
    count: int,
    rounds: int,
    urls: Mapping[Where, Callable[[], str | None]],
) -> dict[str, float]:
    scratch.mkdir(parents=True)
    bodies = write_events(scratch / "records", count)
    run = {"mqtt": _mqtt, "webhook": _webhook, "eventhub": _eventhub}[kind]
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for where, url in urls.items():
            place = scratch / f"{number}-{where}"
            rates = run(place, scratch / "records", count, url())
            for name, rate in zip((where, f"bare_{where}"), rates, strict=True):
                found.setdefault(name, []).append(rate)
    bare = [rate for name, rates in found.items() if name.startswith("bare") for rate in rates]
    return {
        "records": count,
        "bytes": bodies,
        **{where: round(statistics.median(found[where])) for where in urls},
        "bare": round(statistics.median(bare)),
    }


def write_events(file: Path, count: int) -> int:
    """A file of records about events, from some VMs in turn; the bytes of one."""
    vms = [FakeVm(name=f"vm-{number}", scale_set="set") for number in range(VMS)]
    lines = []
    for number in range(count):
        vm = vms[number % VMS]
        event = vm.event(f"E-{number // 4}", description="Host server is undergoing maintenance.")
        lines.append(b"%s %s" % (vm.topic("event").encode(), event.body))
    file.write_bytes(b"\n".join(lines))
    return len(lines[0].partition(b" ")[2])


def _mqtt(scratch: Path, file: Path, count: int, url: str | None) -> tuple[float, float]:
    """Both have a session at the broker, and the broker holds the same backlog for both."""
    with Mosquitto(scratch / "broker") as broker:
        settings = {"HOST": broker.host, "PORT": str(broker.port)}
        console = make_console(scratch / "console", "mqtt", url, **settings)
        console.start()
        eventually(lambda: "source_connected" in console.log, what="the connection", timeout=60)
        console.stop()
        bare = [PYTHON, "-m", "tests.benchmarks.bare_intake", "mqtt", str(broker.port)]
        _run([*bare, "0"])
        _run([PYTHON, "-m", "tests.benchmarks.mqtt_feed", str(broker.port), str(file), "0"])
        raw = float(_run([*bare, str(count)]))
        return _taken(console, count), raw


def _eventhub(scratch: Path, file: Path, count: int, url: str | None) -> tuple[float, float]:
    with program("feeds", "hub", str(file)) as hub:
        assert hub.stdout is not None
        address = (
            f"Endpoint=sb://127.0.0.1:{int(hub.stdout.readline())}/;SharedAccessKeyName=send;"
            f"SharedAccessKey={SHARED_KEY};EntityPath={feeds.HUB};UseDevelopmentEmulator=true"
        )
        raw = float(
            _run([PYTHON, "-m", "tests.benchmarks.bare_intake", "eventhub", address, str(count)])
        )
        console = make_console(scratch / "console", "eventhub", url, CONNECTION_STRING=address)
        rate = _taken(console, count)
        hub.kill()
        return rate, raw


def _webhook(scratch: Path, file: Path, count: int, url: str | None) -> tuple[float, float]:
    """Every VM posts at once, and waits for each answer."""
    with program("bare_intake", "webhook", "-", str(count)) as bare:
        assert bare.stdout is not None
        port = bare.stdout.readline().strip()
        with program("feeds", "post", port, str(file), "-"):
            raw = float(bare.stdout.readline())
    console = make_console(scratch / "console", "webhook", url)
    console.start()
    try:
        with program("feeds", "post", str(console.port), str(file), str(console.key_file)):
            return _rate(console, count), raw
    finally:
        console.kill()


def make_console(directory: Path, kind: str, url: str | None, **fields: str) -> ConsoleProcess:
    """A console with one source of a kind, called feed."""
    settings = {f"SOURCE__FEED__{name}": value for name, value in fields.items()}
    settings["SOURCE__FEED__KIND"] = kind
    if url is not None:
        settings["DATABASE"] = url
    console = ConsoleProcess(directory, **settings)
    console.begin = executed
    if kind == "webhook":  # its own source of that kind would be a second one
        del console.environ["SEB_CONSOLE_SOURCE__WEB__KIND"]
    return console


def _taken(console: ConsoleProcess, count: int) -> float:
    console.start()
    try:
        return _rate(console, count)
    finally:
        console.kill()


def _rate(console: ConsoleProcess, count: int) -> float:
    """Records a second, from the first look that finds some committed to the last commit."""
    first: tuple[float, float] | None = None
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        text = console.http.get(console.url + "/metrics", timeout=30).text
        found, moment = _TAKEN.search(text), _COMMITTED.search(text)
        taken, at = float(found[1]) if found else 0.0, float(moment[1]) if moment else 0.0
        if taken >= count:
            before, begun = first or (0.0, at - _LOOK_SECONDS)
            return (taken - before) / (at - begun)
        if taken and first is None:
            first = (taken, at)
        time.sleep(_LOOK_SECONDS)
    raise TimeoutError(f"only {taken:.0f} of {count} records were taken in\n{console.log}")


def program(module: str, *arguments: str) -> subprocess.Popen[str]:
    """One of the small programs beside this one, with pipes."""
    return subprocess.Popen(
        [PYTHON, "-m", f"tests.benchmarks.{module}", *arguments],
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout
