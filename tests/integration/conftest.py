"""A simulator, and bridges that look at it, for tests of one run each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.process.launch import Launch

from bridge.simulator.simulator import Simulator


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """An IMDS with no event yet."""
    with Simulator() as made:
        yield made


@pytest.fixture
def launch(simulator: Simulator, tmp_path: Path) -> Iterator[Launch]:
    """Starts bridges; each is ended with the test."""
    with ExitStack() as stack:
        yield Launch(stack, simulator.url, tmp_path)
