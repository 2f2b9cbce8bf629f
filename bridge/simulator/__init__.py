"""A stand-in for IMDS: its events, its instance document, its refusals and its bad days.

It never imports the rest of the bridge: it knows Azure's side only.
"""

from bridge.simulator.approvals import Approval
from bridge.simulator.events import API_VERSIONS, SimulatedEvent, new_event_id
from bridge.simulator.fault_names import FAULT_NAMES, parse_fault
from bridge.simulator.faults import (
    CutJson,
    DripBody,
    DripHeaders,
    EmptyBody,
    Endless,
    Fault,
    Html,
    Huge,
    NoEvents,
    Refused,
    Reset,
    Silence,
    Slow,
    Status,
    Truncated,
)
from bridge.simulator.scenarios import SCENARIOS, Scenario, UnknownScenarioError
from bridge.simulator.simulator import Simulator
from bridge.simulator.timeline import SimulatedDocument, UnknownEventError
from bridge.simulator.vm import SimulatedVm

__all__ = [
    "API_VERSIONS",
    "FAULT_NAMES",
    "SCENARIOS",
    "Approval",
    "CutJson",
    "DripBody",
    "DripHeaders",
    "EmptyBody",
    "Endless",
    "Fault",
    "Html",
    "Huge",
    "NoEvents",
    "Refused",
    "Reset",
    "Scenario",
    "Silence",
    "SimulatedDocument",
    "SimulatedEvent",
    "SimulatedVm",
    "Simulator",
    "Slow",
    "Status",
    "Truncated",
    "UnknownEventError",
    "UnknownScenarioError",
    "new_event_id",
    "parse_fault",
]
