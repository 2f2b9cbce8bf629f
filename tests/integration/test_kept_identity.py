"""A start while IMDS does not give the VM identity: what a bridge may do until it does."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.eventually import eventually
from support.ports import free_port
from support.process.bridge import run_seb, written
from support.process.launch import Launch

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import StatusFault
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm
from bridge.store.database import CONFIRMED_BOOT_KEY
from bridge.store.opening import FILE_NAME

OTHER = SimulatedVm(vm_id="11111111-2222-4333-8444-555555555555", name="other")
APPROVE_ALL = '[{"name": "all", "affects_this_vm": true}]'
NOT_YET = "the VM identity is not confirmed by IMDS yet; try again"


@pytest.fixture
def out(launch: Launch) -> Path:
    """Return the file of one of the sinks."""
    launch.env["SEB_SINK__FILE__PATH"] = str(launch.home / "out.jsonl")
    launch.env["SEB_APPROVAL__RULES"] = APPROVE_ALL
    return launch.home / "out.jsonl"


def committed(state: Path) -> list[str]:
    """Return the types of the records in the store of a bridge that has ended."""
    with closing(sqlite3.connect(state / FILE_NAME)) as connection:
        return [kind for (kind,) in connection.execute("SELECT type FROM records")]


def another_boot(state: Path) -> None:
    """Make the store look as if the machine had booted since IMDS confirmed the identity."""
    with closing(sqlite3.connect(state / FILE_NAME)) as connection, connection:
        done = connection.execute(
            "UPDATE meta SET value = 'another boot' WHERE key = ?", (CONFIRMED_BOOT_KEY,)
        )
        assert done.rowcount == 1


def known(launch: Launch, out: Path) -> int:
    """Run a bridge that learns its identity and stops in order; return how many records it
    delivered.
    """
    first = launch()
    first.wait_for_log("started")
    eventually(lambda: len(written(out)) >= 1, what="the first record")
    assert first.stop() == 0
    return len(written(out))


def test_another_vms_disk(launch: Launch, simulator: Simulator, out: Path) -> None:
    """Until IMDS gives this VM's own identity, nothing is approved or delivered in the name of the
    VM that the disk came from, also after a second start.
    """
    before = known(launch, out)
    another_boot(launch.state)
    with Simulator(vm=OTHER) as imds:
        imds.announce(SimulatedEvent(resources=(simulator.vm.name,)))
        imds.fault(StatusFault(503), times=None, at="instance")
        bridge = launch(SEB_IMDS__URL=imds.url)
        bridge.wait_for_log("event.scheduled")
        assert imds.wait_until_served(gets=5)
        bridge.kill()
        bridge = launch(SEB_IMDS__URL=imds.url)
        bridge.wait_for_log("identity_trouble")
        assert imds.wait_until_served(gets=10)
        imds.heal()
        eventually(lambda: len(written(out)) >= before + 2, what="records of this VM", timeout=30)
        assert bridge.stop() == 0
        assert imds.approvals == []
    assert [each["type"] for each in written(out)[before : before + 2]] == [
        "seb.bridge.store-reset.v1",
        "seb.bridge.started.v1",
    ]
    assert {each["partitionkey"] for each in written(out)[before:]} == {OTHER.vm_id}


def test_approvals_that_are_held_are_shown(launch: Launch, simulator: Simulator, out: Path) -> None:
    """Within one boot records are delivered, and the status says that no rule acts yet."""
    launch.env["SEB_APPROVAL__RULES"] = '[{"name": "all"}]'
    launch.env["SEB_HTTP__LISTEN"] = f"127.0.0.1:{free_port()}"
    known(launch, out)
    simulator.fault(StatusFault(503), times=None, at="instance")
    launch().wait_for_log("sink_up")
    shown = run_seb("status", env=launch.env, home=launch.home)
    assert shown.code == 1
    assert "nothing is approved" in shown.out
    simulator.heal()
    eventually(
        lambda: run_seb("status", env=launch.env, home=launch.home).code == 0, what="approvals"
    )


def test_a_kept_identity_has_the_tags_that_are_named_now(
    launch: Launch, simulator: Simulator, out: Path
) -> None:
    """From the next start on no record has a tag that the settings no longer name, also while IMDS
    does not answer.
    """
    launch.env["SEB_IDENTITY__TAGS"] = '["environment"]'
    before = known(launch, out)
    launch.env["SEB_IDENTITY__TAGS"] = "[]"
    simulator.fault(StatusFault(503), times=None, at="instance")
    known(launch, out)
    tags = [each["data"]["vm"]["tags"] for each in written(out)]
    assert [{"environment": "simulated"}] * before == tags[:before]
    assert {} in tags[before:]
    assert {"environment": "simulated"} not in tags[before:]


def test_this_vm_after_a_boot(launch: Launch, simulator: Simulator, out: Path) -> None:
    """What was recorded before the identity was confirmed is delivered and approved in order
    afterwards; until then a person is asked to wait.
    """
    before = known(launch, out)
    another_boot(launch.state)
    event = simulator.announce(SimulatedEvent())
    simulator.fault(StatusFault(503), times=None, at="instance")
    bridge = launch()
    bridge.wait_for_log("event.scheduled")
    assert simulator.wait_until_served(gets=5)
    assert len(written(out)) == before
    assert simulator.approvals == []
    refused = run_seb("approve", event.event_id, "--yes", home=launch.home, env=launch.env)
    assert (refused.code != 0, NOT_YET in refused.err) == (True, True)
    simulator.heal()
    bridge.wait_for_log("identity_ok", timeout=30)
    bridge.wait_for_log("approval.posted")
    assert bridge.stop() == 0
    kinds = [str(each["type"]) for each in written(out)[before:]]
    assert kinds[:3] == [
        "seb.bridge.started.v1",
        "seb.event.scheduled.v1",
        "seb.approval.v1",
    ]
    assert len(simulator.approvals) == 1


def test_this_vm_in_the_same_boot(launch: Launch, simulator: Simulator, out: Path) -> None:
    """A bridge that restarts within one boot delivers at once; approvals wait for the identity."""
    before = known(launch, out)
    simulator.announce(SimulatedEvent())
    simulator.fault(StatusFault(503), times=None, at="instance")
    bridge = launch()
    eventually(lambda: len(written(out)) >= before + 2, what="the event")
    assert simulator.wait_until_served(gets=5)
    assert simulator.approvals == []
    assert "seb.approval.v1" not in [each["type"] for each in written(out)]
    simulator.heal()
    bridge.wait_for_log("approval.posted", timeout=30)
    assert bridge.stop() == 0
    assert len(simulator.approvals) == 1


def test_a_stop_before_it_is_confirmed(launch: Launch, simulator: Simulator, out: Path) -> None:
    """A run that is stopped before the identity is confirmed ends in order, and its records wait
    for the next run.
    """
    before = known(launch, out)
    another_boot(launch.state)
    simulator.fault(StatusFault(503), times=None, at="instance")
    bridge = launch()
    bridge.wait_for_log("started")
    assert bridge.stop() == 0
    assert bridge.logs("stopped")[0]["undelivered"] == "file"
    assert "Traceback" not in bridge.errors
    assert len(written(out)) == before
    assert committed(launch.state)[-2:] == ["seb.bridge.started.v1", "seb.bridge.stopped.v1"]
    simulator.heal()
    again = launch()
    eventually(lambda: len(written(out)) >= before + 3, what="all of it")
    assert again.stop() == 0


def test_one_look_at_another_boot(launch: Launch, simulator: Simulator, out: Path) -> None:
    """`seb run --once` after a boot commits its records, delivers nothing, and says why."""
    before = known(launch, out)
    another_boot(launch.state)
    simulator.announce(SimulatedEvent())
    simulator.fault(StatusFault(503), times=None, at="instance")
    once = launch("--once")
    assert once.wait() == 69
    assert "does not confirm who this VM is" in once.errors
    assert len(written(out)) == before
    assert "seb.event.scheduled.v1" in committed(launch.state)
