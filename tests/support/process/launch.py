"""Starts `seb run` with a fast poll, no heartbeats, one state directory and standard output."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from support.process.bridge import BridgeProcess, fast


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
