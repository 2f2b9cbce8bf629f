"""A VM that stands still: SIGSTOP does to the bridge what a freeze of the host does to the VM."""

import signal
import threading

from support.process.launch import Launch

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

PAUSE = 3.0
TOLERANCE = 1.2
"""Seconds: the clocks are compared once a second."""


def test_a_pause_is_measured(launch: Launch, simulator: Simulator) -> None:
    """The ended record of an event of this VM has the measured pause."""
    bridge = launch()
    bridge.wait_for_records(1)
    event = simulator.announce(SimulatedEvent())
    bridge.wait_for_records(1, types="seb.event.scheduled")
    simulator.start_event(event.event_id)
    bridge.wait_for_records(1, types="seb.event.started")

    bridge.send(signal.SIGSTOP)
    threading.Event().wait(PAUSE)  # the length of the pause is the experiment
    bridge.send(signal.SIGCONT)
    line = bridge.wait_for_log("pause")
    assert abs(line["seconds"] - PAUSE) < TOLERANCE
    simulator.end_event(event.event_id)
    (ended,) = bridge.wait_for_records(1, types="seb.event.ended")
    measured = ended["data"]["observation"]
    assert abs(measured["pauseSeconds"] - PAUSE) < TOLERANCE
    assert (measured["restarted"], measured["downtimeSeconds"]) == (False, None)
    assert ended["data"]["event"]["eventStatus"] == "Completed"
