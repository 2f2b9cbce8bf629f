"""A page whose clock moves only when a test moves it; what it asks for still takes real time."""

from __future__ import annotations

from datetime import timedelta

from eventually import eventually
from playwright.sync_api import Page, expect
from status_fixture import StatusServer
from status_samples import NOW

# The page rests while its timer for the next question runs: only then may its time pass, for the
# answers take real time.
_RESTS = """() => {
  const [set, clear, pending] = [window.setTimeout, window.clearTimeout, new Map()];
  window.setTimeout = (then, delay) => {
    const id = set(() => { pending.delete(id); then(); }, delay);
    pending.set(id, delay);
    return id;
  };
  window.clearTimeout = (id) => { pending.delete(id); clear(id); };
  window.rests = () => [...pending.values()].some((delay) => [2000, 10000].includes(delay));
}"""


def stop_clock(page: Page) -> None:
    """Let it be the bridge's now, for good; to be called before the page is opened."""
    page.clock.install(time=NOW - timedelta(hours=1))
    page.clock.pause_at(NOW)
    page.add_init_script(f"({_RESTS})()")


def rest(page: Page) -> None:
    """Wait until the page has made something of the last answer."""
    eventually(lambda: bool(page.evaluate("() => rests()")), what="the page's rest")


def opened(page: Page, server: StatusServer) -> None:
    """Open the page, and wait until it has shown something and follows the records."""
    page.goto(server.url)
    expect(page.locator("#contact")).to_have_text("Connected")
    if server.streaming:
        expect(page.locator("#timeline h2 small")).to_have_text("live")
    rest(page)


def pass_time(page: Page, seconds: int) -> None:
    """Let the page's time pass, and each question be answered at once."""
    for _ in range(2 * seconds):
        page.clock.run_for(500)
        rest(page)


def look_again(page: Page) -> None:
    """Let the page ask once more."""
    pass_time(page, 2)
