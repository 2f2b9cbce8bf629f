"""kill -9 around approvals: one effect, one end, and a cause on disk for every POST."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support.commands.approval_stage import Stage
from support.process.bridge import BridgeProcess

from bridge.simulator.approvals import Approval
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import Reset, Status
from bridge.simulator.simulator import Simulator

FINAL = ("failed", "confirmed")
RULES = json.dumps([{"name": "reboots", "event_type": ["Reboot"]}])
BEFORE_DEATH = (0.0, 0.12)
"""Seconds from a command to the death of its bridge: from before it is read to after its end."""


class Ordeal:
    """One event per round, approved by a command or by a rule, and a death around it."""

    def __init__(self, home: Path, *, rounds: int, seed: int) -> None:
        self.home = home
        self.rounds = rounds
        self.draw = random.Random(seed)
        self.state = home / "state" / "seb.db"
        self.causeless: list[str] = []
        """EventIds of POSTs that came without a cause on disk."""
        self.asked: dict[str, str] = {}
        """The jti of each command, by its event."""
        simulator = Simulator(approval_delay=0.1, on_approval=self._look_for_cause)
        with Stage(home, simulator=simulator) as self.stage:
            for number in range(rounds):
                self._round(number)
            self._last_life()
            self.receipts = self._receipts()
            self.effective = self.stage.effective()
            self.posts = len(self.stage.simulator.approvals)

    def bridge(self) -> BridgeProcess:
        return self.stage.bridge({"SEB_APPROVAL__RULES": RULES})

    def _round(self, number: int) -> None:
        """A life that begins with an event of the last one still under way, and ends badly."""
        by_rule = number % 3 == 2
        event = SimulatedEvent(event_type="Reboot" if by_rule else "Freeze")
        self._misbehave()
        with self.bridge() as bridge:
            bridge.wait_for_log("started")
            self.stage.simulator.announce(event)
            record = self.stage.line.wait_for_event(event.event_id).record
            if not by_rule:
                jti = self.asked[event.event_id] = f"command-{number}"
                token = self.stage.signer.approve(record, jti=jti)
                self.stage.line.publish(self.stage.simulator.vm.vm_id, token)
            threading.Event().wait(self.draw.uniform(*BEFORE_DEATH))  # the experiment
            bridge.kill()

    def _misbehave(self) -> None:
        """Some rounds IMDS loses an answer, or does not feel well."""
        fault = self.draw.choice([None, None, Reset(after_effect=True), Reset(), Status(500)])
        if fault is not None:
            self.stage.simulator.fault(fault, at="start")

    def _last_life(self) -> None:
        """A life that lasts until every cause has its end."""
        self.stage.simulator.heal()
        deadline = time.monotonic() + 60
        with self.bridge() as bridge:
            bridge.wait_for_log("started")
            while self._unfinished() and time.monotonic() < deadline:
                threading.Event().wait(0.1)
            self.unfinished = self._unfinished()
            self.code = bridge.stop()

    def _unfinished(self) -> list[str]:
        states = [each[-1] for each in self._receipts().values()]
        told = [event_id for event_id, jti in self.asked.items() if jti not in self._receipts()]
        return [*told, *(state for state in states if state not in FINAL)]

    def _receipts(self) -> Mapping[str, list[str]]:
        """The states of every jti, in order, as the file sink has them."""
        found: dict[str, dict[str, str]] = defaultdict(dict)
        file = self.home / "records.jsonl"
        for line in file.read_bytes().splitlines() if file.exists() else ():
            record: dict[str, Any] = json.loads(line)
            if record["type"] == "seb.approval.v1":
                found[record["data"]["jti"]][record["id"]] = record["data"]["state"]
        return {jti: list(states.values()) for jti, states in found.items()}

    def _look_for_cause(self, approval: Approval) -> None:
        """Whatever asks IMDS must have its cause on disk before it is answered."""
        event_id = json.loads(approval.body)["StartRequests"][0]["EventId"]
        # A copy that is made while the poller writes may be torn; the one who asks waits for us.
        if not any(self._has_cause(event_id) for _ in range(5)):
            self.causeless.append(event_id)

    def _has_cause(self, event_id: str) -> bool:
        copy = self.home / "copy.db"
        for suffix in ("", "-wal"):
            source = self.state.with_name(self.state.name + suffix)
            copy.with_name(copy.name + suffix).write_bytes(source.read_bytes())
        with closing(sqlite3.connect(copy)) as connection, suppress(sqlite3.Error):
            query = "SELECT 1 FROM approvals WHERE event = ?"
            return bool(connection.execute(query, (event_id,)).fetchall())
        return False


def check(ordeal: Ordeal) -> None:
    """Everything that is promised."""
    assert ordeal.code == 0
    assert ordeal.unfinished == []
    assert ordeal.causeless == []
    assert len(ordeal.effective) == len(set(ordeal.effective)), "two effective approvals"
    assert set(ordeal.asked.values()) <= ordeal.receipts.keys(), "a command without an answer"
    for jti, states in ordeal.receipts.items():
        assert states[0] == "accepted", jti
        assert states[-1] in FINAL, jti
        assert sum(state in (*FINAL, "rejected") for state in states) == 1, (jti, states)


def try_rounds(home: Path, rounds: int, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Kill, look, and say what was found."""
    ordeal = Ordeal(home, rounds=rounds, seed=seed)
    check(ordeal)
    states = [tuple(each) for each in ordeal.receipts.values()]
    with capsys.disabled():
        print(
            f"\nkill -9 around approvals: {rounds} rounds, {len(ordeal.asked)} commands, "
            f"{len(ordeal.receipts)} causes, {ordeal.posts} POSTs, {len(ordeal.effective)} "
            f"effective, none twice; ends: "
            f"{ {each: states.count(each) for each in sorted(set(states))} }"
        )


def test_kill_around_an_approval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twelve lives that end in kill -9 around an approval, and one that brings all to an end."""
    try_rounds(tmp_path, 12, seed=3, capsys=capsys)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_a_hundred_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same a hundred times over, on one store."""
    try_rounds(tmp_path, 100, seed=7, capsys=capsys)
