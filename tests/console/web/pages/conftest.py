"""One browser per module, and consoles whose clock a test sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from support.console.stage import ConsoleStage
from support.page.browser import started_browser, watched_page


# Not for the whole session: while it is open, no other test of this process could use asyncio.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's browser."""
    with started_browser() as started:
        yield started


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ConsoleStage]:
    """A console of its own."""
    with ConsoleStage(tmp_path) as made:
        yield made


@pytest.fixture
def page(browser: Browser, stage: ConsoleStage) -> Iterator[Page]:
    """A page that is not opened yet; at its end the test fails if the browser has reported an
    error.
    """
    with watched_page(browser, stage.url) as made:
        yield made
