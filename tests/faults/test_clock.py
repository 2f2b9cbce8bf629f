"""The wall clock is set, far, to and fro: polls go on, nothing is lost, nothing absurd is said."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.commands.approval_over_mqtt import ApprovalOverMqtt
from support.eventually import eventually
from support.faults.clock import (
    GROWTH,
    HOUR,
    YEARS,
    WrongClock,
    all_of,
    polls_again,
)
from support.faults.oracle import Evidence, Figures, certain, judge, outbox_of
from support.faults.process import usage
from support.process.bridge import BridgeProcess, fast
from support.sinks.five_sinks import FiveSinks

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

Tell = Callable[[Figures], None]
JUMPS = (-HOUR, HOUR, 0.0, YEARS, 0.0, -YEARS, 0.0, YEARS, -YEARS, -HOUR, 0.0)
"""By how much the clock is wrong, one after the other."""
ABSURD = 600.0
"""Seconds: longer than anything that really happens here, and less than the least of the jumps."""


def in_a_quarter() -> SimulatedEvent:
    """An event that is due in fifteen minutes, by IMDS's clock, which is right."""
    return SimulatedEvent(not_before=datetime.now(UTC) + timedelta(minutes=15))


def check_observations(bodies: Iterable[Mapping[str, Any]]) -> None:
    """Notice is what the design says of it, and no jump is taken for a pause or a gap."""
    first: dict[str, datetime] = {}
    due: dict[str, datetime] = {}
    for record in bodies:
        data = record["data"]
        if "gap" in data:
            assert data["gap"]["seconds"] < ABSURD
        if "transition" not in data:
            continue
        event, told = data["event"], data["observation"]
        seen = first.setdefault(event["eventId"], datetime.fromisoformat(record["time"]))
        if event["notBefore"]:
            due[event["eventId"]] = datetime.fromisoformat(event["notBefore"])
        notice = (due[event["eventId"]] - seen).total_seconds()
        assert abs(told["noticeSeconds"] - notice) < 0.01
        assert told["gapSeconds"] is None or 0 <= told["gapSeconds"] < ABSURD
        assert (told.get("pauseSeconds") or 0.0) < ABSURD
        assert (told.get("restarted") or False) is False


def test_polls_go_on_after_every_jump(tmp_path: Path, tell: Tell) -> None:
    """After each jump there is a poll within seconds, five sinks get every change, and memory is
    what it was.
    """
    with ExitStack() as stack:
        sinks = stack.enter_context(FiveSinks(tmp_path))
        simulator = stack.enter_context(Simulator())
        clock = stack.enter_context(WrongClock(tmp_path))
        env = fast(simulator.url, tmp_path, **sinks.env)
        bridge = stack.enter_context(clock.bridge(env, tmp_path))
        bridge.wait_for_log("started")
        simulator.wait_for_gets(2)
        before = usage(bridge.pid).memory
        waits = []
        for wrong_by in JUMPS:
            waits.append(live_through(simulator, bridge, clock, wrong_by))
            bridge.wait_for_log("clock_jump", count=len(waits))
        grown = usage(bridge.pid).memory - before
        all_of(sinks, bridge)
        assert bridge.stop() == 0
        received = all_of(sinks, bridge)
        documents, standing = certain(simulator), simulator.history[-1].json()
    check_observations(bridge.records)
    assert len(bridge.logs("clock_jump")) == len(JUMPS)
    assert bridge.logs("pause") == [] or bridge.logs("pause")[-1]["seconds"] < ABSURD
    assert grown < GROWTH
    evidence = Evidence(
        case="clock: an hour and thirty years, to and fro",
        rounds=len(JUMPS),
        received=received,
        documents=documents,
        standing=standing,
        outbox=outbox_of(tmp_path, env),
    )
    tell(judge(evidence, more=f"next poll after {max(waits):.2f} s, {grown:.1f} MiB more"))


def live_through(
    simulator: Simulator, bridge: BridgeProcess, clock: WrongClock, wrong_by: float
) -> float:
    """A jump between an event's announcement and its start; seconds until the polls went on."""
    count = len(bridge.records)
    event = simulator.announce(in_a_quarter())
    bridge.wait_until(lambda: len(bridge.records) > count, "scheduled")
    clock.set(wrong_by)
    waited = polls_again(simulator)
    simulator.start_event(event.event_id)
    bridge.wait_until(lambda: len(bridge.records) > count + 1, "started")
    simulator.end_event(event.event_id)
    bridge.wait_until(lambda: len(bridge.records) > count + 2, "ended")
    return waited


@pytest.mark.parametrize("moment", ["1970-01-01T00:00:20", "2015-10-21T07:28:00"])
def test_before_the_first_time_sync(tmp_path: Path, tell: Tell, moment: str) -> None:
    """A bridge that starts before the clock is right sees, tells and commits; it obeys no command
    until the clock is right, and then the same one.
    """
    with ApprovalOverMqtt(tmp_path) as stage, WrongClock(tmp_path) as clock:
        clock.set_to(datetime.fromisoformat(moment).replace(tzinfo=UTC))
        with clock.bridge(stage.env, tmp_path) as bridge:
            bridge.wait_for_log("started")
            record = stage.announce(not_before=in_a_quarter().not_before).record
            assert record["time"].startswith(moment[:7])
            token = stage.signer.approve(record, jti="one")
            stage.send(token)
            stage.line.wait_for_step("one", "rejected", "not_yet_valid")
            clock.set(0.0)
            waited = polls_again(stage.simulator)
            bridge.wait_for_log("clock_jump")
            stage.send(token)
            stage.line.wait_for_step("one", "confirmed")
            check_observations(each.record for each in stage.line.came if not each.is_receipt)
            assert bridge.stop() == 0
        tell(
            judge(
                evidence_of(stage, f"clock: first sync from {moment[:4]}"),
                more=f"next poll after {waited:.2f} s",
            )
        )
    assert [each.started for each in stage.simulator.approvals] == [
        (record["data"]["event"]["eventId"],)
    ]


def evidence_of(stage: ApprovalOverMqtt, case: str) -> Evidence:
    """What a stage has seen, with one good command."""
    written = (stage.home / "records.jsonl").read_bytes().splitlines()

    def came() -> list[bytes]:
        return [each.body for each in stage.line.came]

    eventually(lambda: len(set(came())) >= len(written), what="the last record over MQTT")
    return Evidence(
        case=case,
        received={"file": written, "mqtt": came()},
        documents=certain(stage.simulator),
        outbox=outbox_of(stage.home, stage.env),
        posts=stage.simulator.approvals,
        commands=("one",),
    )
