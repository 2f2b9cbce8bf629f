"""A simulator, bridges that look at it, and commands in this process."""

import pytest
from support.process.launch import launch
from support.process.seb_here import here

from bridge.simulator.simulator import Simulator

__all__ = ["here", "launch"]


@pytest.fixture
def simulator(imds_simulator: Simulator) -> Simulator:
    """An IMDS with no event yet."""
    return imds_simulator
