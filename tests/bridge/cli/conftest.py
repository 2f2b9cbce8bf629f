"""What the tests of commands share: settings that name one IMDS and one state directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.process.bridge import Ended
from support.process.launch import Launch
from support.process.seb_here import seb_here

from bridge.simulator.simulator import Simulator


@pytest.fixture
def launch(imds_simulator: Simulator, tmp_path: Path) -> Iterator[Launch]:
    """Starts bridges; each is ended with the test."""
    with ExitStack() as stack:
        yield Launch(stack, imds_simulator.url, tmp_path)


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Runs a command in this process, with these variables: for those that start nothing."""

    def run(*arguments: str, **env: str) -> Ended:
        return seb_here(*arguments, home=tmp_path, env=env, monkeypatch=monkeypatch, capsys=capsys)

    return run
