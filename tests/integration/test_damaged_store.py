"""A store that turns bad under a running bridge: the run ends, and the next one begins anew."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.store_helpers import NOW

from bridge.config.load import load
from bridge.logs import Redactor
from bridge.service.bridge import Bridge, Outcome
from bridge.simulator.simulator import Simulator
from bridge.store.database import CONDEMNED_NAME
from bridge.store.opening import open_store


@pytest.fixture
def bridge(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bridge]:
    """A bridge that can be run in this process."""
    monkeypatch.chdir(tmp_path)
    config = load(
        environ={
            "SEB_IMDS__URL": simulator.url,
            "SEB_STATE_DIR": str(tmp_path / "state"),
            "SEB_SINK__FILE__PATH": str(tmp_path / "out.jsonl"),
        }
    )
    stop = threading.Event()
    yield Bridge(config, stop=stop, redact=Redactor())
    stop.set()


def test_the_run_ends_and_the_next_begins_anew(bridge: Bridge, tmp_path: Path) -> None:
    """It does not go on for ever with a store that takes nothing."""
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(bridge.run()))
    thread.start()
    out = tmp_path / "out.jsonl"
    for _ in range(500):
        if out.exists() and out.stat().st_size:
            break
        thread.join(0.02)
    bridge._store.damaged = "database disk image is malformed"
    (tmp_path / "state" / CONDEMNED_NAME).touch()
    thread.join(20)
    assert outcomes == [Outcome.DAMAGED_STORE]
    store, reset = open_store(tmp_path / "state", NOW)
    store.close()
    assert reset is not None
