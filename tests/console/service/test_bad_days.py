"""A database that is unreachable, locked or full, and a console that is killed: no record that was
acknowledged is lost.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random

import pytest
from pydantic import SecretStr
from support.console.intake import Intake
from support.console.mqtt import MqttFleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.faults.mount import fill, small_disk
from support.mqtt.mosquitto import Mosquitto
from support.postgresql import PostgreSql

from console.config.settings import ConsoleSettings
from console.db.connection.opening import Database, database_url
from console.db.sources.listening import ListeningInterval, write_listening
from console.ingest.source_batch import SourceBatch
from console.ingest.writer import Writer
from console.records.parse import parse_record
from wire.moment import rfc3339

_NUMBERS = count(1)


def mqtt(broker: Mosquitto, **settings: str) -> dict[str, str]:
    """The settings of a source called broker."""
    return {
        "SOURCE__BROKER__KIND": "mqtt",
        "SOURCE__BROKER__HOST": broker.host,
        "SOURCE__BROKER__PORT": str(broker.port),
        **settings,
    }


def status(console: ConsoleProcess, path: str) -> int:
    """Return the status of a path about the console's health."""
    return console.http.get(console.url + path, timeout=10).status_code


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker of the test's own."""
    with Mosquitto(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def fleet(broker: Mosquitto) -> Iterator[MqttFleet]:
    """A publisher at the broker."""
    with MqttFleet(broker) as publisher:
        yield publisher


def test_a_postgresql_that_stops_for_a_while_loses_nothing(
    broker: Mosquitto, fleet: MqttFleet, postgresql: PostgreSql, tmp_path: Path
) -> None:
    """While PostgreSQL is stopped the console is not ready; afterwards it stores what came in
    between.
    """
    url = postgresql.database(f"stopped_{next(_NUMBERS)}")
    vm = FakeVm()
    with ConsoleProcess(tmp_path / "console", **mqtt(broker, DATABASE=url)) as console:
        fleet.say(vm, vm.event("E0"))
        eventually(lambda: "E0" in console.events(), what="the first")
        postgresql.stop()
        try:
            fleet.say(vm, *(vm.event(f"E{n}") for n in range(1, 300)))
            eventually(lambda: status(console, "/readyz") == 503, what="not ready", timeout=30)
            assert status(console, "/healthz") == 200
        finally:
            postgresql.start()
        eventually(lambda: status(console, "/readyz") == 200, what="ready", timeout=60)
        eventually(lambda: len(console.events(limit=1000)) >= 300, what="all", timeout=60)
        assert console.vms()["web-1"]["gaps"] == 0


def test_a_database_that_goes_while_nothing_comes_in_is_missed(
    postgresql: PostgreSql, tmp_path: Path
) -> None:
    """The console is not ready soon after the database has stopped, although no record comes in."""
    url = SecretStr(postgresql.database(f"idle_{next(_NUMBERS)}"))
    database = Database(database_url(ConsoleSettings(state_dir=tmp_path, database=url)))
    writer = Writer(database, on_open=lambda: None, on_commit=lambda: None)
    writer.start()
    try:
        assert writer.opened.wait(30)
        postgresql.stop()
        try:
            eventually(lambda: writer.progress.trouble is not None, what="the trouble")
        finally:
            postgresql.start()
        eventually(lambda: writer.progress.trouble is None, what="its end", timeout=30)
    finally:
        writer.stop()
        database.close()


def test_what_cannot_be_written_as_time_passes_holds_up_no_record(
    postgresql: PostgreSql, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A change that the database refuses because of its data is logged, and records are stored."""
    url = postgresql.database(f"refused_{next(_NUMBERS)}")
    database = Database(database_url(ConsoleSettings(state_dir=tmp_path, database=SecretStr(url))))
    database.open()
    long_ago = datetime.now(UTC) - timedelta(hours=3)
    intake = Intake(database)
    intake.now = long_ago
    vm = FakeVm()
    intake.take(vm.event("E", not_before=rfc3339(long_ago), now=long_ago))
    until = datetime.now(UTC).timestamp() + 600
    with database.writing.begin() as connection:  # a console listened all the time
        listened = ListeningInterval(source="web", since=long_ago.timestamp() - 600, until=until)
        write_listening(connection, "another", [listened], seen_at=until)
    postgresql.execute(
        url,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'too long' USING ERRCODE = '54000'; END $$",
    )
    postgresql.execute(
        url,
        "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON event "
        "FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    writer = Writer(database, on_open=lambda: None, on_commit=lambda: None)
    writer.start()
    stored = threading.Event()
    try:
        eventually(
            lambda: "settle_bug" in [getattr(each, "action", "") for each in caplog.records],
            what="the refusal",
            timeout=30,
        )
        received = datetime.now(UTC).timestamp()
        beat = parse_record(vm.heartbeat().body, source="web", received_at=received)
        writer.put(SourceBatch(source="web", items=[beat], on_end=lambda _: stored.set()))
        assert stored.wait(30)
        assert writer.progress.trouble is None
    finally:
        writer.stop()
        database.close()


def test_a_console_starts_before_its_database(postgresql: PostgreSql, tmp_path: Path) -> None:
    """A console without its database starts and waits for it."""
    url = postgresql.database(f"later_{next(_NUMBERS)}")
    postgresql.stop()
    try:
        console = ConsoleProcess(tmp_path / "console", DATABASE=url)
        console.start(ready=False)
        assert status(console, "/readyz") == 503
    finally:
        postgresql.start()
    eventually(lambda: status(console, "/readyz") == 200, what="ready", timeout=60)
    assert console.stop() == 0


@pytest.mark.parametrize("share", [{}, {"SOURCE__BROKER__SHARE": "console"}], ids=["all", "shared"])
def test_two_consoles_on_one_database_show_the_same(
    broker: Mosquitto,
    fleet: MqttFleet,
    postgresql: PostgreSql,
    tmp_path: Path,
    share: dict[str, str],
) -> None:
    """Two consoles on one database show each record once; if both read all, one may be killed."""
    url = postgresql.database(f"two_{next(_NUMBERS)}")
    settings = mqtt(broker, DATABASE=url, **share)
    vms = [FakeVm(name=f"web-{n}", scale_set="set") for n in range(6)]
    names = [vm.name for vm in vms]
    with (
        ConsoleProcess(tmp_path / "one", **settings) as one,
        ConsoleProcess(tmp_path / "two", **settings) as two,
    ):
        for console in (one, two):
            eventually(lambda c=console: "source_connected" in c.log, what="connected")  # type: ignore[misc]
        for vm in vms:
            fleet.retain(vm, "status", vm.status("online", commands=True))
            fleet.say(vm, *(vm.event(f"E{n}", resources=names) for n in range(10)))
        for console in (one, two):
            eventually(
                lambda c=console: (  # type: ignore[misc]
                    [item["seenBy"] for item in c.events().values()] == [6] * 10
                    and all(vm["gaps"] == 0 for vm in c.vms().values())
                ),
                what="every event with every reporter",
                timeout=40,
            )
        assert one.events() == two.events()
        assert [vm["vmId"] for vm in one.vms().values()] == [
            vm["vmId"] for vm in two.vms().values()
        ]
        if share:  # the broker keeps the part of a console that is away until it is back
            return
        one.kill()
        for vm in vms:  # all say so: what one says of an event does not end it for the others
            fleet.say(vm, vm.event("E0", transition="ended", resources=names))
        eventually(lambda: "E0" not in two.events(), what="the end", timeout=40)


def test_a_locked_sqlite_is_waited_for(broker: Mosquitto, fleet: MqttFleet, tmp_path: Path) -> None:
    """While another program locks the file, the console waits, and no record is lost."""
    vm = FakeVm()
    with ConsoleProcess(tmp_path / "console", **mqtt(broker)) as console:
        fleet.say(vm, vm.event("E0"))
        eventually(lambda: "E0" in console.events(), what="the first")
        lock = sqlite3.connect(tmp_path / "console" / "console.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        fleet.say(vm, *(vm.event(f"E{n}") for n in range(1, 60)))
        eventually(lambda: status(console, "/readyz") == 503, what="not ready", timeout=40)
        lock.execute("ROLLBACK")
        lock.close()
        eventually(lambda: len(console.events(limit=1000)) == 60, what="all", timeout=60)
        assert status(console, "/readyz") == 200


def test_a_full_disk_is_waited_for(broker: Mosquitto, fleet: MqttFleet, tmp_path: Path) -> None:
    """Records are not acknowledged while the disk is full, and are stored once there is room."""
    vm = FakeVm()
    with small_disk(tmp_path / "disk", megabytes=4) as disk:
        state = disk / "console"
        with ConsoleProcess(state, **mqtt(broker)) as console:
            fleet.say(vm, vm.event("E0"))
            eventually(lambda: "E0" in console.events(), what="the first")
            filler = fill(disk)
            fleet.say(vm, *(vm.event(f"E{n}") for n in range(1, 200)))
            eventually(lambda: status(console, "/readyz") == 503, what="not ready", timeout=40)
            assert status(console, "/healthz") == 200
            filler.unlink()
            eventually(lambda: len(console.events(limit=1000)) == 200, what="all", timeout=60)
            assert console.vms()["web-1"]["gaps"] == 0


def test_kill_at_any_moment_loses_and_doubles_nothing(
    broker: Mosquitto, fleet: MqttFleet, tmp_path: Path
) -> None:
    """After each kill -9 under load every published record is stored once."""
    rounds(broker, fleet, tmp_path, count=5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_kills_lose_and_double_nothing(
    broker: Mosquitto, fleet: MqttFleet, tmp_path: Path
) -> None:
    """After a hundred kills every published record is stored once."""
    rounds(broker, fleet, tmp_path, count=100)


def rounds(broker: Mosquitto, fleet: MqttFleet, tmp_path: Path, *, count: int) -> None:
    """Publish and kill so many times, then compare the rows with what was sent."""
    random = Random(count)
    vms = [FakeVm(name=f"web-{n}") for n in range(5)]
    console = ConsoleProcess(tmp_path / "console", **mqtt(broker))
    console.start()
    eventually(lambda: "source_connected" in console.log, what="connected")
    sent = 0
    for _ in range(count):
        size = random.randint(20, 80)
        for number in range(size):
            vm = vms[number % 5]
            fleet._client.publish(vm.topic(), vm.event(f"E{sent}").body, 1)
            sent += 1
        wait_for(console, tmp_path, sent - random.randint(1, size))
        console.kill()
        console.start()
    wait_for(console, tmp_path, sent)
    assert stored(tmp_path) == sent
    whole_vms = [0] * len(vms)
    eventually(lambda: [vm["gaps"] for vm in console.vms().values()] == whole_vms, what="the VMs")
    whole = console.get("events", state="open", limit=1)
    assert whole["items"]
    console.kill()


def wait_for(console: ConsoleProcess, tmp_path: Path, count: int) -> None:
    """Return once so many records are stored; on a slow machine that may take any time, as long as
    they become more.
    """
    before = -1
    while (now := stored(tmp_path)) < count:
        assert now > before, f"{now} of {count} records, and no more of them\n{console.log}"
        before = now
        with suppress(AssertionError):
            eventually(lambda: stored(tmp_path) > before, what="one more", timeout=60)  # noqa: B023


def stored(tmp_path: Path) -> int:
    """Return how many records are in the database."""
    file = tmp_path / "console" / "console.db"
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30) as connection:
        number: int = connection.execute("SELECT count(*) FROM record").fetchone()[0]
    connection.close()
    return number
