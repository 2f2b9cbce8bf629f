"""The end of a run at a signal."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import uvicorn
from support.console.process import ConsoleProcess

from console.service.server import ended_by_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_with_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    """A signal ends the run with a closed database and without a trace on standard error."""
    with ConsoleProcess(tmp_path) as console:
        assert console.process is not None
        console.process.send_signal(number)
        assert console.process.wait(20) == 0
        assert "Traceback" not in console.log


def test_a_signal_that_comes_before_the_server_listens_ends_it() -> None:
    """A signal between the start of the process and that of the server ends the run."""
    server = uvicorn.Server(uvicorn.Config(lambda: None))
    before = signal.getsignal(signal.SIGTERM)
    with ended_by_signals(server):
        signal.raise_signal(signal.SIGTERM)
    assert server.should_exit
    assert signal.getsignal(signal.SIGTERM) is before
