"""The system's Chromium, and a page in it that remembers everything that must not happen. The
headless shell is the same browser without windows, menus and extensions, and takes a third of the
CPU.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

ARTIFACTS = Path(__file__).parents[3] / "test-artifacts" / "page"
PHONE = (360, 740)
DESKTOP = (1280, 900)
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
VIEWS: tuple[tuple[str, tuple[int, int], Theme], ...] = tuple(
    (f"{name}-{theme}", size, theme)
    for name, size in (("phone", PHONE), ("desktop", DESKTOP))
    for theme in THEMES
)
PATIENCE_MS = 15_000
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def executable() -> str | None:
    """Where the system's browser is; None where there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def started_browser() -> Iterator[Browser]:
    """The system's browser, without a window. Skips the test where there is none."""
    path = executable()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(_NAMES)} is installed")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def new_context(browser: Browser, *, time_zone: str = "Europe/Zurich") -> Iterator[BrowserContext]:
    """A profile of its own, on a desk, by day."""
    context = browser.new_context(
        viewport={"width": DESKTOP[0], "height": DESKTOP[1]},
        color_scheme="light",
        timezone_id=time_zone,
        locale="en-GB",
    )
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield context
    finally:
        context.close()


@contextmanager
def watched_page(browser: Browser, url: str, *, time_zone: str = "Europe/Zurich") -> Iterator[Page]:
    """A page that is not yet opened; at the end, nothing bad may have happened."""
    with new_context(browser, time_zone=time_zone) as context:
        page = context.new_page()
        with Watched(url).watching(page):
            yield page


@dataclass
class Watched:
    """What a page did that nobody should see."""

    origin: str
    errors: list[str] = field(default_factory=list)
    """Exceptions of the page, and what it wrote to the console as an error or a warning."""
    strangers: list[str] = field(default_factory=list)
    """Requests to anybody but the own origin."""

    @contextmanager
    def watching(self, page: Page) -> Iterator[None]:
        """Listen to a page. Raises `AssertionError` at the end of what went well but for that."""
        listeners: dict[Any, Callable[[Any], None]] = {
            "pageerror": lambda error: self.errors.append(str(error)),
            "console": lambda said: self._said(said.type, said.text),
            "request": lambda request: self._asked(request.url),
        }
        for name, listener in listeners.items():
            page.on(name, listener)
        try:
            yield
            found = (self.errors, self.strangers, page.context.cookies())
            assert found == ([], [], [])
        finally:
            for name, listener in listeners.items():
                page.remove_listener(name, listener)

    def _said(self, kind: str, text: str) -> None:
        # The browser itself reports each request that fails, also where the page copes with it.
        if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.errors.append(text)

    def _asked(self, url: str) -> None:
        own = urlsplit(url)[:2] == urlsplit(self.origin)[:2]
        if not own and not url.startswith(("data:", "about:")):
            self.strangers.append(url)


def check_views(page: Page, name: str, *, every: bool = False) -> None:
    """Look at a page that does not change meanwhile in every size and theme: a screenshot of each,
    nothing wider than its window, and no serious fault; with `every`, no fault at all.
    """
    for view, size, theme in VIEWS:
        _show(page, size, theme)
        screenshot(page, f"{name}-{view}")
        found = faults(page, every=every)
        assert (view, overflow(page), found) == (view, 0, []), found


def _show(page: Page, size: tuple[int, int], theme: Theme) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=theme)


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return int(
        page.evaluate(
            "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
    )


def faults(page: Page, *, every: bool = False) -> list[str]:
    """What axe-core holds for serious or critical, or finds at all, with the elements."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(Axe().axe_script)
    found: list[dict[str, Any]] = page.evaluate(
        "every => { const run = () => axe.run({ resultTypes: ['violations'], preload: false,"
        " rules: { 'target-size': { enabled: every } } });"
        " return (window.clock?.hasty ? clock.hasty(run) : run())"
        ".then(({ violations }) => violations); }",
        every,
    )
    return [
        f"{fault['id']}: {node['html'][:160]} {node.get('failureSummary', '')}"
        for fault in found
        if every or fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


def screenshot(page: Page, name: str) -> None:
    """The whole page as test-artifacts/page/<name>.png."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)
