"""The pytest plugin: an IMDS of your own for tests, as the fixture `imds_simulator`.

pytest loads it in every project where the package is installed, so it never imports the simulator
before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bridge.simulator.simulator import Simulator


@pytest.fixture
def imds_simulator() -> Iterator[Simulator]:
    """A started `Simulator` on a free loopback port; stopped after the test."""
    from bridge.simulator.simulator import Simulator  # noqa: PLC0415  # the plugin must be cheap to load

    with Simulator() as simulator:
        yield simulator
