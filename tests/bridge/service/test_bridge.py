"""One run of the bridge: what reaches it while its parts are still being made."""

import threading
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.eventually import eventually

from bridge.api import control
from bridge.api.control_requests import ControlRequests, starting_requests
from bridge.config.load import load
from bridge.service import bridge as bridge_module
from bridge.service.bridge import Bridge
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from bridge.store.opening import open_existing
from bridge.store.outbox import Outbox
from sinks.shared.logs import Redactor


class SlowRequests:
    """Answers as the requests of a starting bridge do, but only once the bridge has started."""

    def __init__(self, requests: ControlRequests, started: threading.Event) -> None:
        self._requests = requests
        self._started = started

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer late."""
        assert self._started.wait(20)
        return self._requests.answer(request)


def dead_records(state: Path) -> Any:
    """Ask the running bridge for its dead records."""
    answer = control.send(state, {"ask": "outbox.list"})
    return None if answer is None else answer["dead"]


def test_a_retry_that_came_while_the_bridge_started_is_not_lost(
    imds_simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead record that a person has tried again at the very start is delivered in that run."""
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out.jsonl"
    state = tmp_path / "state"
    settings = {
        "SEB_IMDS__URL": imds_simulator.url,
        "SEB_STATE_DIR": str(state),
        "SEB_SINK__FILE__PATH": str(out),
        "SEB_HTTP__LISTEN": "",
    }
    imds_simulator.announce(SimulatedEvent(event_type="Reboot"))
    configuration = load(environ=settings)
    assert Bridge(configuration, stop=threading.Event(), redact=Redactor()).run_once()
    now = datetime.now(UTC)
    with closing(open_existing(state)) as store, store.transaction() as connection:
        Outbox(store).dead.add(connection, "file", 1, reason="no", attempts=1, now=now, again=False)

    started, stop = threading.Event(), threading.Event()
    monkeypatch.setattr(
        bridge_module,
        "starting_requests",
        lambda *arguments: SlowRequests(starting_requests(*arguments), started),
    )
    bridge = Bridge(configuration, stop=stop, redact=Redactor())
    run = threading.Thread(target=bridge.run)
    run.start()
    try:
        eventually((state / control.FILE_NAME).exists, what="the control address")
        answers: list[Any] = []
        ask = {"ask": "outbox.retry", "sink": "file", "sequences": None}
        caller = threading.Thread(target=lambda: answers.append(control.send(state, ask)))
        caller.start()
        eventually(lambda: out.read_text().count("\n") > 1, what="the record of the start")
        started.set()
        caller.join(20)
        assert answers == [{"records": 1, "resumed": False}]
        eventually(lambda: dead_records(state) == [], what="the delivery of the dead record")
    finally:
        started.set()
        stop.set()
        run.join(20)
