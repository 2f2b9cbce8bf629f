"""The wall clock goes back while a hub owes an answer: its client counts by the wall clock, and the
bridge's watchdog does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.amqp.faults import Fault
from support.amqp.server import EventHubServer
from support.faults.clock import HOUR, WrongClock, variables
from support.faults.oracle import Evidence, Figures, certain, judge, outbox_of

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

Tell = Callable[[Figures], None]
HUB = "events"
PATIENCE = 90.0
"""Seconds: an hour is what the client alone would wait."""


@pytest.mark.faults
def test_a_clock_that_goes_back_while_a_hub_is_silent(tmp_path: Path, tell: Tell) -> None:
    """What the hub never acknowledged is sent again within its deadline, not an hour later, and
    no other sink waits for it.
    """
    with ExitStack() as stack:
        hub = stack.enter_context(EventHubServer())
        simulator = stack.enter_context(Simulator())
        clock = stack.enter_context(WrongClock(tmp_path))
        env = variables(
            simulator,
            tmp_path,
            SEB_SINK__STDOUT__FORMAT="json",
            SEB_SINK__HUB__KIND="eventhub",
            SEB_SINK__HUB__CONNECTION_STRING=hub.connection_string(HUB),
        )
        bridge = stack.enter_context(clock.bridge(env, tmp_path))
        assert hub.wait_for_messages(HUB, 1, timeout=PATIENCE)
        hub.misbehave(Fault.NO_ACK, times=1)
        simulator.announce(SimulatedEvent())
        assert hub.misbehaved.wait(PATIENCE)
        begun = time.monotonic()
        clock.set(-HOUR)
        bridge.wait_for_records(1, types="seb.event.")
        soon = time.monotonic() - begun
        assert hub.wait_for_messages(HUB, 2, timeout=PATIENCE)
        late = time.monotonic() - begun
        assert simulator.wait_until_served(gets=2)
        assert bridge.stop() == 0
        received = {
            "hub": [each.body for each in hub.messages(HUB)],
            "stdout": [line.text.rstrip(b"\n") for line in bridge.output],
        }
        documents = certain(simulator)
    evidence = Evidence(
        case="clock: back an hour under a silent hub",
        received=received,
        documents=documents,
        standing=documents[-1],
        outbox=outbox_of(tmp_path, env),
    )
    tell(judge(evidence, more=f"stdout after {soon:.1f} s, the hub after {late:.1f} s"))
