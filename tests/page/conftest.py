"""One browser per module, and a bridge's answers as a test wants them."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from support.page.browser import started_browser
from support.page.status_fixture import StatusServer
from support.page.still_page import fresh, still_page


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


@pytest.fixture(scope="module")
def still(browser: Browser) -> Iterator[Page]:
    """A page in which time stands still."""
    with still_page(browser) as made:
        yield made


@pytest.fixture
def page(still: Page, server: StatusServer) -> Iterator[Page]:
    """A page whose clock stands still at the bridge's now; not yet opened."""
    with fresh(still, server.url) as made:
        yield made
