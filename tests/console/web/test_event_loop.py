"""Nothing holds the console's event loop or its threads for long, however large the fleet is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from support.console.records import FakeVm
from support.console.stage import ConsoleStage

from console.web.api import metrics
from console.web.pages import fleet_page


def test_the_fleet_page_is_drawn_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the page of a large fleet is drawn, other requests are answered."""
    goes_on, drawing = threading.Event(), threading.Event()
    values = fleet_page.template_values

    def slow(*arguments: object) -> object:
        drawing.set()
        assert goes_on.wait(20)
        return values(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet_page, "template_values", slow)
    with ConsoleStage(tmp_path) as stage, ThreadPoolExecutor(1) as pool:
        stage.put(FakeVm(name="web-1").heartbeat(now=stage.now))
        page = pool.submit(stage.page, "/fleet")
        assert drawing.wait(20)
        assert stage.http.get(f"{stage.url}/healthz", timeout=20).status_code == 200
        goes_on.set()
        assert "web-1" in page.result(20)


def test_strangers_who_ask_for_the_numbers_hold_up_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests for the metrics, which need no login, delay no page: the whole fleet is counted once
    for all that come meanwhile.
    """
    goes_on, reading = threading.Event(), threading.Event()
    counted: list[int] = []
    overview = metrics.overview  # type: ignore[attr-defined]

    def slow(*arguments: object) -> object:
        counted.append(1)
        reading.set()
        assert goes_on.wait(60)
        return overview(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(metrics, "overview", slow)
    with ConsoleStage(tmp_path) as stage, ThreadPoolExecutor(60) as pool:
        stage.put(FakeVm(name="web-1").heartbeat(now=stage.now))

        def scraped(_number: int) -> str:
            return requests.get(f"{stage.url}/metrics", timeout=60).text

        asked = [pool.submit(scraped, number) for number in range(60)]
        try:
            assert reading.wait(20)
            assert "web-1" in stage.page("/fleet")
        finally:
            goes_on.set()
        assert all('seb_console_vms{contact="heard"} 1.0' in each.result(60) for each in asked)
    assert len(counted) < 10
