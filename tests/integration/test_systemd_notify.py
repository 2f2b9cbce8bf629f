"""The messages of a running bridge to systemd: each poll feeds the watchdog, whatever its
result.
"""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.eventually import eventually
from support.process.launch import Launch
from support.process.notify_socket import NotifySocket

from bridge.config.load import load
from bridge.service.bridge import Bridge, RunEnd
from bridge.simulator.faults import RefusedFault, Silence
from bridge.simulator.simulator import Simulator
from sinks.shared.logs import Redactor

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="systemd is Linux' own")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[NotifySocket]:
    """A socket in place of systemd's."""
    with NotifySocket(tmp_path) as made:
        yield made


def watched(manager: NotifySocket, **more: str) -> dict[str, str]:
    """Return the environment of a service with WatchdogSec=60."""
    return {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "60000000", **more}


def test_from_ready_to_stopping(launch: Launch, manager: NotifySocket) -> None:
    """READY is sent once, a feeding with each poll, and STOPPING at SIGTERM as the last message."""
    bridge = launch(**watched(manager))
    ready = manager.hear("READY=1")
    fed = manager.hear("WATCHDOG=1", after=ready + 1)
    fed = manager.hear("WATCHDOG=1", after=fed + 1)
    assert bridge.stop() == 0
    said = manager.rest()
    assert [lines for lines in said if "READY=1" in lines] == [said[ready]]
    assert [lines for lines in said if "STOPPING=1" in lines] == [["STOPPING=1"]]


def test_an_imds_that_is_away_at_boot_is_no_reason_either(
    launch: Launch, simulator: Simulator, manager: NotifySocket
) -> None:
    """READY comes before IMDS has answered, and each try to get the identity feeds the watchdog."""
    simulator.fault(RefusedFault(), times=None)
    simulator.fault(RefusedFault(), times=None, at="instance")
    bridge = launch(**watched(manager))
    place = manager.hear("READY=1") + 1
    for _ in range(3):
        place = manager.hear("WATCHDOG=1", after=place) + 1
    assert bridge.stop() == 0


def test_a_poll_that_hangs_does_not_feed(
    launch: Launch, simulator: Simulator, manager: NotifySocket
) -> None:
    """While a poll hangs, no timer feeds the watchdog."""
    simulator.fault(Silence(seconds=60), times=None)
    bridge = launch(**watched(manager, SEB_HEARTBEAT_INTERVAL="0.2"))
    manager.hear("READY=1")
    assert simulator.wait_for_gets(1)
    before = len(manager.rest())
    bridge.wait_for_records(5, types="seb.bridge.heartbeat")
    assert manager.rest()[before:] == []
    assert bridge.stop() == 0


def test_a_new_run_in_the_same_process_is_no_stop(
    simulator: Simulator, manager: NotifySocket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the process begins a new run, STOPPING is not sent: systemd would take it for the
    end.
    """
    for name, value in watched(manager).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out.jsonl"
    settings = {
        "SEB_IMDS__URL": simulator.url,
        "SEB_STATE_DIR": str(tmp_path / "state"),
        "SEB_SINK__FILE__PATH": str(out),
        "SEB_HTTP__LISTEN": "",
    }
    bridge = Bridge(load(environ=settings), stop=threading.Event(), redact=Redactor())
    outcomes: list[RunEnd] = []
    thread = threading.Thread(target=lambda: outcomes.append(bridge.run()))
    thread.start()
    eventually(lambda: out.exists() and out.stat().st_size > 0, what="the first record")
    bridge._parts.store.damaged = "database disk image is malformed"
    thread.join(20)
    assert outcomes == [RunEnd.DAMAGED_STORE]
    assert not [lines for lines in manager.rest() if "STOPPING=1" in lines]
