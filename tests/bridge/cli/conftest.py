"""What the tests of commands share: settings that name one IMDS and one state directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.process.launch import Launch

from bridge.simulator.simulator import Simulator


@pytest.fixture
def launch(imds_simulator: Simulator, tmp_path: Path) -> Iterator[Launch]:
    """Starts bridges; each is ended with the test."""
    with ExitStack() as stack:
        yield Launch(stack, imds_simulator.url, tmp_path)
