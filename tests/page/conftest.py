"""One browser per module, and a bridge's answers as a test wants them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import started_browser, watched_page
from playwright.sync_api import Browser, Page
from status_fixture import StatusServer
from still_page import stop_clock


# Not for the whole session: while it is open, no other test of this process could use asyncio.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's browser."""
    with started_browser() as started:
        yield started


@pytest.fixture
def server() -> Iterator[StatusServer]:
    """Serves the page, and the answers that a test gives it."""
    with StatusServer() as made:
        yield made


@pytest.fixture
def page(browser: Browser, server: StatusServer) -> Iterator[Page]:
    """A page whose clock stands still at the bridge's now; not yet opened."""
    with watched_page(browser, server.url) as made:
        stop_clock(made)
        yield made
