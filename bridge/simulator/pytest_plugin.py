"""The fixture `imds_simulator`: an IMDS for tests. It loads the simulator only when used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bridge.simulator.simulator import Simulator


@pytest.fixture
def imds_simulator() -> Iterator[Simulator]:
    """Yield a started `Simulator` on a free loopback port; stopped after the test."""
    from bridge.simulator.simulator import Simulator  # noqa: PLC0415  # the plugin must be cheap to load

    with Simulator() as simulator:
        yield simulator
