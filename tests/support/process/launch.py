"""Starts `seb run` with a fast poll, no heartbeats, one state directory and standard output."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.process.bridge import BridgeProcess, fast

from bridge.simulator.simulator import Simulator


class Launch:
    """Bridges that look at one IMDS and share a state directory; `stack` ends them."""

    def __init__(self, stack: ExitStack, imds_url: str, home: Path) -> None:
        self._stack = stack
        self.home = home
        self.state = home / "state"
        self.env = fast(imds_url, home)

    def __call__(self, *arguments: str, **variables: str) -> BridgeProcess:
        """A running `seb run` with further arguments and variables."""
        made = BridgeProcess("run", *arguments, env={**self.env, **variables}, home=self.home)
        return self._stack.enter_context(made)


@pytest.fixture
def launch(imds_simulator: Simulator, tmp_path: Path) -> Iterator[Launch]:
    """Starts bridges; each is ended with the test."""
    with ExitStack() as stack:
        yield Launch(stack, imds_simulator.url, tmp_path)
