"""A cluster whose VMs prepare, with a real console above it; what the VMs did is the oracle."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from support.console.decision_bench import DecisionBench
from support.console.process import ConsoleProcess
from support.eventually import eventually
from support.process.scripts import python_script

from bridge.simulator.events import SimulatedEvent

# A line when it begins and one when it has ended; it waits while `hold` is there, and ends with the
# code in the file `code`, if there is one and it prepares.
PROGRAM = """
import json, os, sys, time
home = sys.argv[1]
record = json.load(sys.stdin)
what = os.environ['SEB_EVENT_TRANSITION']
def note(word):
    with open(os.path.join(home, 'runs'), 'a') as file:
        file.write(f"{time.time()} {what} {word} {record['data']['fingerprint']}\\n")
note('begun')
while what != 'ended' and os.path.exists(os.path.join(home, 'hold')):
    time.sleep(0.02)
code = os.path.join(home, 'code')
if what != 'ended' and os.path.exists(code):
    sys.exit(int(open(code).read()))
note('done')
"""
GROUP = {"name": "db", "match": {"name": ["web-*"]}, "approve": {}}


class PreparingCluster(DecisionBench):
    """Some VMs with a program each that prepares, in one group unless settings say otherwise."""

    group: dict[str, Any] = GROUP

    def more(self, home: Path) -> dict[str, str]:
        """The program that prepares."""
        program = python_script(home / "prepare", PROGRAM)
        return {
            "SEB_SINK__DRAIN__KIND": "program",
            "SEB_SINK__DRAIN__COMMAND": json.dumps([str(program), str(home)]),
            "SEB_SINK__DRAIN__PREPARES": "true",
        }

    def source(self, name: str) -> dict[str, str]:
        """The console's settings, with the group."""
        return super().source(name) | {"GROUPS": json.dumps([self.group])}

    def home(self, number: int) -> Path:
        """The directory of a VM's bridge."""
        return self.directory / f"bridge-{number}"

    def announce_for(self, number: int, *, minutes: float = 10) -> str:
        """An event that names one VM, which alone sees it; its id."""
        simulator = self.simulators[number]
        soon = datetime.now(UTC) + timedelta(minutes=minutes)
        event = SimulatedEvent(event_type="Reboot", not_before=soon, resources=(simulator.vm.name,))
        simulator.announce(event)
        return event.event_id

    def runs(self, number: int) -> list[tuple[float, str, str, str]]:
        """What a VM's program did: time, transition, begun or done, and the fingerprint."""
        path = self.home(number) / "runs"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(at), what, word, mark) for at, what, word, mark in map(str.split, lines)]

    def words(self, number: int) -> list[str]:
        """What a VM's program did, in order."""
        return [f"{what} {word}" for _, what, word, _ in self.runs(number)]

    def most_away(self) -> int:
        """The largest number of VMs that were away at once, from their preparation on until their
        recovery had ended.
        """
        steps = []
        for number in range(len(self.simulators)):
            is_away = False
            for at, what, word, _ in self.runs(number):
                if what == "scheduled" and word == "begun" and not is_away:
                    steps.append((at, 1))
                    is_away = True
                elif what == "ended" and word == "done" and is_away:
                    steps.append((at, -1))
                    is_away = False
        most = count = 0
        for _, change in sorted(steps):
            count += change
            most = max(most, count)
        return most

    def approved(self, number: int) -> list[str]:
        """The events that POSTs at one VM have started."""
        posts = self.simulators[number].approvals
        return [event_id for post in posts for event_id in post.started]


def turn(console: ConsoleProcess, event_id: str) -> str:
    """The state of an event's turn; empty while the console does not know it."""
    for state in ("open", "over"):
        event = console.events(state=state).get(event_id)
        if event is not None:
            return str(event["turn"]["state"])
    return ""


def reaches(console: ConsoleProcess, event_id: str, *states: str, timeout: float = 60) -> None:
    """Wait until the turn of an event is in one of some states."""
    eventually(
        lambda: turn(console, event_id) in states,
        what=f"{event_id} in {states}, and not {turn(console, event_id)}\n{console.log}",
        timeout=timeout,
    )
