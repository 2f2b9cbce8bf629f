"""Nothing holds the console's event loop for long, however large the fleet is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.console.records import FakeVm
from support.console.stage import ConsoleStage

from console.web.pages import fleet_page


def test_the_fleet_page_is_drawn_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one is drawn, others are answered."""
    goes_on, drawing = threading.Event(), threading.Event()
    values = fleet_page.values

    def slow(*arguments: object) -> object:
        drawing.set()
        assert goes_on.wait(20)
        return values(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet_page, "values", slow)
    with ConsoleStage(tmp_path) as stage, ThreadPoolExecutor(1) as pool:
        stage.put(FakeVm(name="web-1").heartbeat(now=stage.now))
        page = pool.submit(stage.page, "/fleet")
        assert drawing.wait(20)
        assert stage.http.get(f"{stage.url}/healthz", timeout=20).status_code == 200
        goes_on.set()
        assert "web-1" in page.result(20)
