"""`seb outbox`, with a running bridge and with a store that no process has open."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.eventually import eventually
from support.process.bridge import BridgeProcess, EndedCommand, run_seb
from support.process.launch import Launch
from support.process.seb_here import Here
from support.sinks.http_server import HttpServer

from bridge.api import control
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A webhook's receiver."""
    with HttpServer() as made:
        yield made


def environment(launch: Launch, server: HttpServer) -> dict[str, str]:
    """Return the settings of a webhook and standard output."""
    return {
        **launch.env,
        "SEB_SINK__HOOK__KIND": "webhook",
        "SEB_SINK__HOOK__URL": f"{server.origin}/x",
        "SEB_SINK__HOOK__TYPES": '["seb.event.*"]',
        "SEB_SINK__STDOUT__FORMAT": "json",
    }


UNKNOWN = EndedCommand(1, "", "seb: there is no sink hoook; the sinks are: hook, stdout\n")


@pytest.fixture
def outbox(launch: Launch, server: HttpServer, here: Here) -> Here:
    """Run `seb outbox`; return its outcome."""

    def run(*arguments: str) -> EndedCommand:
        return here("outbox", *arguments, **environment(launch, server))

    return run


def hook_of(said: EndedCommand) -> dict[str, Any]:
    """Return the entry of the webhook in `list --json`."""
    assert said.code == 0
    (found,) = [each for each in json.loads(said.out)["sinks"] if each["sink"] == "hook"]
    return dict(found)


def refused_for_good(launch: Launch, server: HttpServer, imds: Simulator) -> BridgeProcess:
    """A bridge whose webhook refused the one record of an event five times."""
    bridge = launch(**environment(launch, server))
    bridge.wait_for_log("started")
    server.answer(status=400, times=5)
    imds.announce(SimulatedEvent())
    # `retry` wakes the sink, or the tries would be seconds apart.
    while not bridge.logs("record_dead"):
        control.send(launch.state, {"ask": "outbox.retry", "sink": "hook", "sequences": [1]})
    return bridge


def test_nothing_yet(launch: Launch, outbox: Here) -> None:
    """`list` makes no store and no directory, because the bridge may run as another user."""
    result = outbox("list")
    assert (result.code, result.out) == (1, "")
    assert result.err == f"seb: there is no store in {launch.state} yet: the bridge has not run\n"
    assert not launch.state.exists()


def test_before_imds_has_answered(launch: Launch, server: HttpServer, outbox: Here) -> None:
    """While the bridge waits for IMDS, it answers with its configured sinks and what it waits
    for.
    """
    bridge = launch(**{**environment(launch, server), "SEB_IMDS__URL": "http://127.0.0.1:9"})
    bridge.wait_for_log("identity_trouble")
    result = outbox("list", "--json")
    assert result.code == 0, result.err
    sinks = json.loads(result.out)["sinks"]
    assert [(each["sink"], each["state"], each["backlog"]) for each in sinks] == [
        ("hook", "starting", 0),
        ("stdout", "starting", 0),
    ]
    result = run_seb("approve", "x", "--yes", home=launch.home, env=environment(launch, server))
    waits = "the bridge is starting: waiting for the VM identity from IMDS; try again"
    assert (result.code, result.err) == (1, f"seb: {waits}\n")
    assert bridge.stop() == 0


def test_dead_records_of_a_running_bridge(
    launch: Launch, server: HttpServer, imds_simulator: Simulator, outbox: Here
) -> None:
    """Dead records are listed with their reason, reported as a record, and tried again on request;
    for an unknown sink the error lists the known ones.
    """
    bridge = refused_for_good(launch, server, imds_simulator)
    result = outbox("list")
    lines = result.out.splitlines()
    assert lines[0].split() == [
        *("SINK", "STATE", "TO", "DELIVER", "DEAD", "OLDEST", "LAST", "DELIVERED")
    ]
    assert next(line for line in lines if line.startswith("hook")).split()[2:4] == ["0", "1"]
    assert "Dead records; `seb outbox retry` sends them again, `drop` forgets them:" in lines
    assert lines[-2].split()[:5] == ["hook", "2", "seb.event.scheduled.v1", "after", "5"]
    assert lines[-1].strip() == f"{server.origin} answered 400 Bad Request"
    told = bridge.wait_for_records(1, types="seb.bridge.dead-letter")[0]["data"]["deadLetter"]
    assert (told["sink"], told["recordSequence"], told["attempts"]) == ("hook", f"{2:020d}", 5)

    assert outbox("retry", "hoook") == UNKNOWN
    assert outbox("retry", "hook", "99").code == 1
    assert outbox("retry", "hook").out == ("hook: 1 dead record will be tried again\n")
    eventually(lambda: len(server.requests()) == 6, what="the sixth try")
    eventually(lambda: hook_of(outbox("list", "--json"))["dead"] == 0, what="no dead")


def test_dead_records_of_a_store_at_rest(
    launch: Launch, server: HttpServer, imds_simulator: Simulator, outbox: Here
) -> None:
    """Without a bridge the same requests get the same answers, and a dropped record is never
    delivered.
    """
    bridge = launch(**environment(launch, server), SEB_SINK__HOOK__TEMPLATE="{{ 1 / 0 }}")
    bridge.wait_for_log("started")
    imds_simulator.announce(SimulatedEvent())
    bridge.wait_for_log("record_dead")
    assert bridge.stop() == 0
    found = hook_of(outbox("list", "--json"))
    assert (found["state"], found["configured"], found["dead"]) == (None, True, 1)
    names = ("sink", "configured", "state", "reason", "backlog", "oldest", "dead")
    assert tuple(found) == names
    assert outbox("retry", "hoook") == UNKNOWN
    for number in ("7", "9" * 20):
        none = outbox("drop", "hook", "--yes", number)
        assert (none.code, none.out) == (1, "hook has no such dead record\n")
    assert outbox("drop", "hook", "--yes", "2").out == ("hook: 1 dead record forgotten\n")
    assert hook_of(outbox("list", "--json"))["dead"] == 0
    assert outbox("list").out.splitlines()[1].split()[:3] == [*("hook", "not", "running")]


@pytest.mark.parametrize("content", [b"no database" * 1000, b""])
def test_list_leaves_a_damaged_store_as_it_is(
    launch: Launch, server: HttpServer, outbox: Here, content: bytes
) -> None:
    """`list` does not touch a damaged store, because a bridge could not open a store that root had
    made. The bridge renames it and reports that to every sink.
    """
    bridge = launch(**environment(launch, server))
    # Before its first poll, an empty file is not known to be damaged.
    eventually((launch.state / "looked").exists, what="the first poll")
    bridge.stop()
    (launch.state / "seb.db").write_bytes(content)
    for command in ("list", "retry hook", "drop hook --yes"):
        result = outbox(*command.split())
        assert (result.code, result.out) == (1, "")
        assert "the bridge puts it aside when it starts" in result.err
    assert (launch.state / "seb.db").read_bytes() == content
    again = launch(**environment(launch, server))
    assert again.wait_for_records(1)[0]["type"] == "seb.bridge.store-reset.v1"
