"""What the tests on Windows share: the installed command, a simulated IMDS, and an odd home."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.process.bridge import BridgeProcess, EndedCommand, run_seb
from support.process.launch import Launch

from bridge.simulator.simulator import Simulator

INSTALLED = Path(sys.executable).parent / "Scripts" / "seb.exe"


@pytest.fixture
def simulator(imds_simulator: Simulator) -> Simulator:
    """A simulated IMDS."""
    return imds_simulator


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory whose name has spaces, and letters that no Windows code page has together."""
    made = tmp_path / "Program Files, 事件, Ereignisse für Größe, события"
    made.mkdir()
    return made


@pytest.fixture
def launch(simulator: Simulator, home: Path) -> Iterator[Launch]:
    """Starts bridges; each is ended with the test."""
    with ExitStack() as stack:
        yield Launch(stack, simulator.url, home)


class Seb:
    """The installed seb.exe, run to its end with the state and the IMDS of `launch`."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def __call__(self, *arguments: str, timeout: float = 80.0, **env: str) -> EndedCommand:
        """The outcome of one command."""
        return run_seb(
            *arguments,
            home=self._launch.home,
            env={**self._launch.env, **env},
            prefix=(str(INSTALLED),),
            timeout=timeout,
        )


@pytest.fixture
def seb(launch: Launch) -> Seb:
    """Runs commands."""
    return Seb(launch)


@pytest.fixture
def broker() -> tuple[str, str]:
    """Host and port of an MQTT broker, which is started outside."""
    address = os.environ.get("GROUND_MQTT")
    if not address:
        pytest.skip("needs an MQTT broker; GROUND_MQTT=HOST:PORT names one")
    host, _, port = address.rpartition(":")
    return host, port


def killed(bridge: BridgeProcess) -> None:
    """TerminateProcess: the end without a word."""
    bridge.kill()
