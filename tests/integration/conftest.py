"""A simulator, bridges that poll it, and commands in this process."""

import pytest
from support.process.launch import launch
from support.process.seb_here import here

from bridge.simulator.simulator import Simulator

__all__ = ["here", "launch"]


@pytest.fixture
def simulator(imds_simulator: Simulator) -> Simulator:
    """An IMDS without an event."""
    return imds_simulator
