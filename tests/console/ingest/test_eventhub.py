"""Records from the stand-in hub over the real SDK, through a real console."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from azure.eventhub.aio import EventHubConsumerClient
from support.amqp.message import PARTITION_KEY, HubMessage
from support.amqp.server import EventHubServer
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.postgresql import PostgreSql
from support.sinks.addresses import Addresses

from console.ingest.eventhub import HubLoop
from wire.record import Record


def send(hub: EventHubServer, *records: Record) -> None:
    """Store records in the hub as a bridge's sink does."""
    hub.append("fleet", [message(record.body, record.partition_key) for record in records])


def message(body: bytes, key: str) -> HubMessage:
    """Return a message with these bytes and a partition key."""
    return HubMessage(body=body, annotations={PARTITION_KEY: key})


@pytest.fixture
def hub() -> Iterator[EventHubServer]:
    """A namespace on loopback."""
    with EventHubServer(partitions=2) as server:
        yield server


@pytest.fixture
def console(hub: EventHubServer, tmp_path: Path) -> Iterator[ConsoleProcess]:
    """A console that reads the hub."""
    settings = {"SOURCE__EVENTHUB__CONNECTION_STRING": hub.connection_string("fleet")}
    with ConsoleProcess(tmp_path / "console", **settings) as running:
        yield running


def test_records_of_every_partition_are_shown(hub: EventHubServer, console: ConsoleProcess) -> None:
    """Earlier and later records of all partitions are read."""
    vms = [FakeVm(name=f"web-{number}") for number in range(8)]
    send(hub, *(vm.event(f"E-{vm.name}") for vm in vms[:4]))
    eventually(lambda: len(console.events()) == 4, what="four events", timeout=40)
    send(hub, *(vm.event(f"E-{vm.name}") for vm in vms[4:]))
    eventually(lambda: len(console.events()) == 8, what="eight events", timeout=40)


def test_a_restart_goes_on_where_the_commit_was(
    hub: EventHubServer, console: ConsoleProcess
) -> None:
    """After kill -9 the console reads on from its checkpoint, without a gap."""
    vm = FakeVm()
    send(hub, vm.event("E1"))
    eventually(lambda: "E1" in console.events(), what="the first", timeout=40)
    console.kill()
    send(hub, vm.event("E2"))
    console.start()
    eventually(lambda: {"E1", "E2"} == set(console.events()), what="both", timeout=40)


def test_a_hub_with_dead_addresses_is_reached(
    hub: EventHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three addresses of its name never answer; the SDK alone waits minutes for each."""

    async def partitions() -> list[str]:
        text = hub.connection_string("fleet").replace("//127.0.0.1", "//localhost")
        async with EventHubConsumerClient.from_connection_string(text, "$Default") as client:
            return await asyncio.wait_for(client.get_partition_ids(), 40)

    with ExitStack() as stack:
        addresses = Addresses(stack)
        dead = [addresses.dead() for _ in range(3)]
        addresses.of(monkeypatch, *dead, ("127.0.0.1", hub.port), name="localhost")
        with asyncio.Runner(loop_factory=HubLoop) as runner:
            assert runner.run(partitions()) == ["0", "1"]


def test_what_is_not_a_record_does_not_stop_a_partition(
    hub: EventHubServer, console: ConsoleProcess
) -> None:
    """Bytes that are not a record go to quarantine, and the next record is read."""
    vm = FakeVm()
    hub.append("fleet", [message(b"\xffgarbage", vm.vm_id), message(b"{}", vm.vm_id)])
    send(hub, vm.event("E1"))
    eventually(lambda: "E1" in console.events(), what="the event", timeout=40)


def test_a_hub_that_goes_away_is_read_again(hub: EventHubServer, console: ConsoleProcess) -> None:
    """The console shows that its hub is not connected, and reads on when it is back."""
    vm = FakeVm()
    send(hub, vm.event("E1"))
    eventually(lambda: "E1" in console.events(), what="the event", timeout=40)
    hub.stop()
    hub.start()
    send(hub, vm.event("E2"))
    eventually(lambda: "E2" in console.events(), what="the second event", timeout=60)


def test_two_consoles_share_the_partitions_and_one_takes_over(
    hub: EventHubServer, postgresql: PostgreSql, tmp_path: Path
) -> None:
    """Two consoles on one database count each record once, and when one dies the other reads its
    partitions.
    """
    url = postgresql.database("hub_of_two")
    settings = {
        "SOURCE__EVENTHUB__CONNECTION_STRING": hub.connection_string("fleet"),
        "DATABASE": url,
    }
    vms = [FakeVm(name=f"web-{number}") for number in range(8)]
    with (
        ConsoleProcess(tmp_path / "one", **settings) as one,
        ConsoleProcess(tmp_path / "two", **settings) as two,
    ):
        send(hub, *(vm.event(f"E-{vm.name}") for vm in vms))
        for console in (one, two):
            eventually(lambda c=console: len(c.events()) == 8, what="eight", timeout=60)  # type: ignore[misc]
        one.kill()
        send(hub, *(vm.event(f"L-{vm.name}") for vm in vms))
        eventually(lambda: len(two.events()) == 16, what="sixteen", timeout=90)
        assert {vm["gaps"] for vm in two.vms().values()} == {0}
