"""The bridge at work on Windows: delivery, the end by force, and the ends that are asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.eventually import eventually as soon
from support.mqtt.subscriber import Subscriber
from support.process.bridge import SEB, BridgeProcess
from support.sinks.http_server import HttpServer

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

if TYPE_CHECKING:
    from support.process.launch import Launch

eventually = partial(soon, timeout=60.0)
CONSOLE = Path(__file__).parents[2] / "support" / "ground" / "own_console.py"


def lines(path: Path) -> list[bytes]:
    """The records that a file sink has written."""
    return path.read_bytes().splitlines() if path.exists() else []


@contextmanager
def in_a_console(home: Path, env: Mapping[str, str]) -> Iterator[BridgeProcess]:
    """`seb run` in a console of its own, whose keys are files in its home."""
    prefix = (sys.executable, str(CONSOLE), *SEB)
    with BridgeProcess("run", env=env, home=home, prefix=prefix) as bridge:
        try:
            yield bridge
        finally:
            (home / "end").touch()
            bridge.wait()


def pressed(home: Path, bridge: BridgeProcess) -> bool:
    """Whether a key had an effect: the bridge has ended, or the key could not be pressed."""
    return bridge.poll() is not None or (home / "refused").exists()


def test_every_sink_gets_the_same_bytes(
    launch: Launch, simulator: Simulator, broker: tuple[str, str]
) -> None:
    """A file, an MQTT broker and a webhook get every record, in order, as the same bytes."""
    host, port = broker
    out = launch.home / "records.jsonl"
    site = "ground"
    with HttpServer() as web:
        subscriber = Subscriber(
            host=host,
            port=int(port),
            filters=[f"seb/v1/{site}/+/+/event"],
            username=None,
            password=None,
            tls=None,
        )
        bridge = launch(
            SEB_SITE=site,
            SEB_SINK__FILE__PATH=str(out),
            SEB_SINK__MQTT__HOST=host,
            SEB_SINK__MQTT__PORT=port,
            SEB_SINK__WEB__KIND="webhook",
            SEB_SINK__WEB__URL=f"{web.origin}/hook",
        )
        event = simulator.announce(SimulatedEvent())
        eventually(lambda: len(lines(out)) >= 2, what="scheduled")
        simulator.start_event(event.event_id)
        simulator.end_event(event.event_id)
        eventually(lambda: b"event.ended" in out.read_bytes(), what="ended")
        wanted = lines(out)
        eventually(lambda: [each.body for each in web.requests()] == wanted, what="the webhook")
        eventually(
            lambda: [each.payload for each in subscriber.messages()] == wanted, what="the broker"
        )
        subscriber.close()
        assert bridge.poll() is None


def test_terminate_process_loses_nothing(launch: Launch, simulator: Simulator) -> None:
    """What was seen before TerminateProcess reaches a webhook that was away, in order, once."""
    with HttpServer() as web:
        web.stop()
        sinks = {"SEB_SINK__WEB__KIND": "webhook", "SEB_SINK__WEB__URL": f"{web.origin}/hook"}
        first = launch(**sinks, SEB_SINK__STDOUT__FORMAT="json")
        events = [simulator.announce(SimulatedEvent()) for _ in range(20)]
        first.wait_for_records(20, types="seb.event.scheduled")
        first.kill()
        seen = [each["id"] for each in first.records]
        web.start()
        launch(**sinks, SEB_SINK__STDOUT__FORMAT="json").wait_for_records(1)
        eventually(lambda: len(web.requests()) > len(seen), what="the backlog")
        came = [json.loads(each.body) for each in web.requests()]
    assert [each["id"] for each in came][: len(seen)] == seen
    noted = [each["subject"] for each in came if "scheduled" in each["type"]]
    assert noted == [f"scheduledEvents/{event.event_id}" for event in events]
    assert len({each["id"] for each in came}) == len(came)


@pytest.mark.parametrize("key", ["ctrl-c", "ctrl-break"])
def test_a_stop_from_the_keyboard(launch: Launch, key: str) -> None:
    """Ctrl-C and Ctrl-Break end it with 0, after the last record has been delivered."""
    out = launch.home / "out.jsonl"
    env = {**launch.env, "SEB_SINK__FILE__PATH": str(out)}
    with in_a_console(launch.home, env) as bridge:
        eventually(lambda: len(lines(out)) >= 1, what="the first record")
        (launch.home / key).touch()
        eventually(lambda: pressed(launch.home, bridge), what="an effect of the key")
        if (launch.home / "refused").exists():
            pytest.skip("this Windows cannot press that key (Wine 8)")
        assert bridge.wait() == 0, bridge.errors
    assert [json.loads(each)["type"] for each in lines(out)][-1] == "seb.bridge.stopped.v1"


def test_a_hung_webhook_is_left_alone(launch: Launch) -> None:
    """A receiver that takes a request and never answers delays neither the stop nor other sinks."""
    out = launch.home / "out.jsonl"
    with HttpServer() as web:
        web.answer(mode="silence", times=20)
        env = {
            **launch.env,
            "SEB_SINK__FILE__PATH": str(out),
            "SEB_SINK__WEB__KIND": "webhook",
            "SEB_SINK__WEB__URL": f"{web.origin}/hook",
        }
        with in_a_console(launch.home, env) as bridge:
            eventually(lambda: web.open_connections() >= 1, what="a request")
            eventually(lambda: len(lines(out)) >= 1, what="the other sink")
            (launch.home / "ctrl-c").touch()
            assert bridge.wait() == 0, bridge.errors


def test_a_program_prepares(launch: Launch, simulator: Simulator) -> None:
    """A batch file in a path with spaces prepares the VM, and a rule then approves the event."""
    batch = launch.home / "drain.cmd"
    batch.write_text(
        "@echo off\r\necho %SEB_EVENT_ID%> drained.txt\r\nexit /b 0\r\n",
        "ascii",
    )
    bridge = launch(
        SEB_SINK__STDOUT__FORMAT="json",
        SEB_SINK__DRAIN__KIND="program",
        SEB_SINK__DRAIN__COMMAND=f'cmd /d /c "{batch}"',
        SEB_SINK__DRAIN__TYPES='["seb.event.scheduled.*"]',
        SEB_APPROVAL__RULES='[{"name": "drained", "event_type": ["Reboot"], "after": ["drain"]}]',
    )
    bridge.wait_for_records(1)
    event = simulator.announce(SimulatedEvent(event_type="Reboot"))
    bridge.wait_for_records(1, types="seb.event.started")
    assert (launch.home / "drained.txt").read_text().strip() == event.event_id
    assert [each.effective for each in simulator.approvals] == [True]
