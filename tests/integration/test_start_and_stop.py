"""The start and the end of a run, also while IMDS fails."""

import json
import os
import signal
import socket
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands.control_plane import IssuerKey, jwks
from support.eventually import eventually
from support.process.launch import Launch
from support.sinks.http_server import HttpServer

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import RefusedFault, Silence
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm

STORE = "seb.db"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_good_order(launch: Launch, number: signal.Signals) -> None:
    """SIGTERM and SIGINT end the run with a stopped record, exit code 0 and no traceback."""
    bridge = launch()
    bridge.wait_for_records(1)
    bridge.send(number)
    assert bridge.wait() == 0
    assert [r["type"].split(".")[2] for r in bridge.records] == ["started", "stopped"]
    assert "Traceback" not in bridge.errors


def test_a_stop_during_a_hanging_first_poll_is_quick(launch: Launch, simulator: Simulator) -> None:
    """A stop does not wait for the first answer, which may take two minutes."""
    simulator.fault(Silence(seconds=60), times=None)
    bridge = launch()
    assert simulator.wait_for_gets(1)
    begun = time.monotonic()
    assert bridge.stop() == 0
    assert time.monotonic() - begun < 20.0


def test_after_a_restart_one_request_without_an_answer_costs_one_timeout(
    launch: Launch, simulator: Simulator
) -> None:
    """After a restart the first request has the ordinary timeout, because the service answered just
    before.
    """
    before = launch()
    before.wait_for_records(1)
    assert simulator.wait_for_gets(1)
    assert before.stop() == 0
    simulator.fault(Silence(seconds=60))
    simulator.announce(SimulatedEvent())
    bridge = launch(SEB_IMDS__TIMEOUT="1")
    bridge.wait_for_records(1, types="seb.event.scheduled")


def test_a_stop_while_the_identity_hangs_is_quick(launch: Launch) -> None:
    """A stop does not wait for the VM identity."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        bridge = launch(SEB_IMDS__URL=url, SEB_IMDS__TIMEOUT="60")
        connection, _ = deaf.accept()
        with connection:
            begun = time.monotonic()
            assert bridge.stop() == 0
            assert time.monotonic() - begun < 20.0


@pytest.mark.skipif(os.name == "nt", reason="a file in use cannot be deleted there")
@pytest.mark.parametrize("instead", ["nothing", "an earlier copy"])
def test_a_store_that_is_replaced_while_it_is_in_use(
    launch: Launch, simulator: Simulator, instead: str
) -> None:
    """A run whose store's file was replaced ends, and the next one uses the current file."""
    before = launch()
    before.wait_for_records(1)
    assert before.stop() == 0
    earlier = (launch.state / STORE).read_bytes()
    bridge = launch(SEB_SINK__STDOUT__FORMAT="json")
    event = simulator.announce(SimulatedEvent())
    bridge.wait_for_records(1, types="seb.event.scheduled")
    for path in launch.state.glob(f"{STORE}*"):
        path.unlink()
    if instead == "an earlier copy":
        (launch.state / STORE).write_bytes(earlier)
    bridge.wait_for_log("store_replaced")
    again = bridge.wait_for_records(2, types="seb.event.scheduled")
    assert {each["data"]["event"]["eventId"] for each in again} == {event.event_id}
    bridge.kill()
    with closing(sqlite3.connect(launch.state / STORE)) as store:
        found = store.execute("SELECT type FROM records").fetchall()
    assert ("seb.event.scheduled.v1",) in found
    assert (("seb.bridge.store-reset.v1",) in found) is (instead == "nothing")


@pytest.mark.skipif(os.name == "nt", reason="a file in use cannot be moved there")
def test_a_run_whose_store_is_gone_approves_nothing(launch: Launch, simulator: Simulator) -> None:
    """If the state directory is moved away and made anew, the event that came meanwhile is approved
    once: by the next run, out of the store in use.
    """
    bridge = launch(SEB_APPROVAL__RULES=json.dumps([{"name": "all"}]))
    bridge.wait_for_records(1)
    moved = launch.state.rename(launch.home / "moved")
    simulator.announce(SimulatedEvent())
    time.sleep(1)
    launch.state.mkdir()
    eventually(lambda: len(simulator.approvals) > 0, what="the approval")
    assert bridge.stop() == 0
    assert _receipts_in(moved) == 0
    assert _receipts_in(launch.state) > 0


def _receipts_in(directory: Path) -> int:
    with closing(sqlite3.connect(directory / STORE)) as store:
        found = store.execute("SELECT count(*) FROM records WHERE type = 'seb.approval.v1'")
        return int(found.fetchone()[0])


def test_a_timeout_that_is_too_long_for_approvals_is_in_the_log(
    launch: Launch, simulator: Simulator
) -> None:
    """The start's log says that nothing is approved while IMDS takes so long to answer."""
    rules = json.dumps([{"name": "a"}])
    bridge = launch(SEB_IMDS__TIMEOUT="15", SEB_APPROVAL__RULES=rules)
    assert "nothing is approved" in bridge.wait_for_log("slow_answers")["message"]


@pytest.mark.skipif(os.name == "nt", reason="a file in use cannot be deleted there")
def test_a_trust_file_that_is_bad_later_ends_no_run(launch: Launch, simulator: Simulator) -> None:
    """A bad trust file ends a start with 78, and does not end a later run of the same process."""
    trust = launch.home / "trust.json"
    trust.write_text("{")
    variables = {"SEB_SINK__STDOUT__FORMAT": "json", "SEB_APPROVAL__TRUST": str(trust)}
    assert launch(**variables).wait() == 78
    trust.write_text(jwks(IssuerKey()))
    bridge = launch(**variables)
    event = simulator.announce(SimulatedEvent())
    bridge.wait_for_records(1, types="seb.event.scheduled")
    trust.write_text("{")
    for path in launch.state.glob(f"{STORE}*"):
        path.unlink()
    bridge.wait_for_log("store_replaced")
    again = bridge.wait_for_records(2, types="seb.event.scheduled")
    assert {each["data"]["event"]["eventId"] for each in again} == {event.event_id}


def test_imds_that_is_down_at_start_is_waited_for(launch: Launch, simulator: Simulator) -> None:
    """While IMDS is down at the start, the log has one line; the records come once it answers."""
    simulator.fault(RefusedFault(seconds=None))
    bridge = launch()
    line = bridge.wait_for_log("identity_trouble")
    assert "connection refused by" in line["message"]
    simulator.heal()
    bridge.wait_for_log("started")
    event = simulator.announce(SimulatedEvent())
    (record,) = bridge.wait_for_records(1, types="seb.event.")
    assert record["data"]["event"]["eventId"] == event.event_id
    assert len(bridge.logs("identity_trouble")) == 1


def test_a_backlog_needs_no_imds(launch: Launch, simulator: Simulator) -> None:
    """After a restart the backlog is delivered although IMDS does not answer yet."""
    with HttpServer() as server:
        server.stop()
        hook = {"SEB_SINK__WEBHOOK__URL": f"{server.origin}/x", "SEB_SINK__STDOUT__FORMAT": "json"}
        event = simulator.announce(SimulatedEvent())
        first = launch(**hook)
        first.wait_for_records(1, types="seb.event.")
        first.kill()

        simulator.fault(RefusedFault(seconds=None))
        server.start()
        second = launch(**hook)
        eventually(lambda: len(server.requests()) >= 3, what="the backlog")
        assert event.event_id in server.requests()[1].body.decode()
        trouble = second.wait_for_log("imds_trouble")
        assert trouble["reason"] == "refused"
        assert second.stop() == 0


def test_an_event_that_cannot_be_is_damage(launch: Launch, simulator: Simulator) -> None:
    """A store with an impossible event is renamed and reported, and the sink gets the pending event
    again.
    """
    simulator.announce(SimulatedEvent())
    first = launch()
    before = first.wait_for_records(1, types="seb.event.")[0]
    assert first.stop() == 0
    with closing(sqlite3.connect(launch.state / STORE)) as connection, connection:
        connection.execute("UPDATE events SET value = replace(value, 'raw', 'x')")
    second = launch()
    again = second.wait_for_records(1, types="seb.event.")[0]
    assert second.stop() == 0
    assert second.records[0]["type"] == "seb.bridge.store-reset.v1"
    assert (before["id"], before["stream"] != again["stream"]) == (again["id"], True)


def test_a_store_of_another_vm_is_put_aside(launch: Launch, tmp_path: Path) -> None:
    """A store from another VM's disk image is renamed, and this VM begins with a first poll."""
    first = launch()
    first.wait_for_records(1)
    first.stop()
    with Simulator(vm=SimulatedVm(vm_id="11111111-2222-4333-8444-555555555555")) as other:
        second = launch(SEB_IMDS__URL=other.url)
        reset, started = second.wait_for_records(2)
        second.stop()
    assert "another VM" in reset["data"]["storeReset"]["reason"]
    assert started["data"]["vm"]["vmId"] == "11111111-2222-4333-8444-555555555555"
    assert started["data"]["started"]["gapSeconds"] is None


def test_a_vm_id_in_another_case_is_the_same_vm(launch: Launch, simulator: Simulator) -> None:
    """A vmId in another case keeps the store, and records have the stored spelling."""
    first = launch()
    before = first.wait_for_records(1)[0]
    first.stop()
    shouted = replace(simulator.vm, vm_id=simulator.vm.vm_id.upper())
    with Simulator(vm=shouted) as other:
        second = launch(SEB_IMDS__URL=other.url)
        started = second.wait_for_records(1, types="seb.bridge.started")[0]
        second.stop()
    assert (before["stream"], before["partitionkey"]) == (
        started["stream"],
        started["partitionkey"],
    )
    assert list(launch.state.glob("*.kept")) == []
