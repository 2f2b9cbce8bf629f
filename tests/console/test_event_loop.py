"""Nothing holds the console's event loop for long, however large the fleet is."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.console.records import FakeVm
from support.console.stage import ConsoleStage

from console.web.pages import fleet_page
from console.web.stream import Stream


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


def test_time_passes_in_parts(tmp_path: Path) -> None:
    """Others get their turn between some VMs and the next, and a VM may go meanwhile."""
    with ConsoleStage(tmp_path) as stage:
        desk = stage.desk
        stage.put(*(FakeVm(name=f"web-{n}").heartbeat(now=stage.now) for n in range(1200)))
        stage.stop()
        turns = []

        async def passing() -> None:
            async def another() -> None:
                while True:
                    turns.append(1)
                    await asyncio.sleep(0)

            task = asyncio.create_task(another())
            await Stream(desk).time_passed()
            task.cancel()

        asyncio.run(passing())
    assert len(turns) >= 3
