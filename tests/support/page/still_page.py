"""A page whose clock moves only when a test moves it; what it asks for still takes real time."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, expect
from support.eventually import eventually
from support.page.browser import DESKTOP, Watched, new_context
from support.page.status_fixture import StatusServer
from support.page.status_samples import NOW

# Each document begins at the bridge's now. A page rests while its timer for the next question
# runs: only then may its time pass, for the answers come when they come. `hasty` gives axe-core,
# which waits for timers of its own, the real ones.
_CLOCK = """(() => {
  const start = START, real = [window.setTimeout, window.clearTimeout], timers = new Map();
  let now = start, last = 0;
  window.Date = class extends Date {
    constructor(...given) { super(...(given.length ? given : [now])); }
    static now() { return now; }
  };
  performance.now = () => now - start;
  const still = [
    (then, delay = 0) => { timers.set(++last, { due: now + delay, delay, then }); return last; },
    (id) => { timers.delete(id); },
  ];
  const use = (pair) => { [window.setTimeout, window.clearTimeout] = pair; };
  use(still);
  window.clock = {
    pass(span) {
      const end = now + span;
      for (;;) {
        const due = [...timers].filter(([, timer]) => timer.due <= end);
        if (!due.length) break;
        const [id, timer] = due.reduce((a, b) => (b[1].due < a[1].due ? b : a));
        timers.delete(id);
        now = Math.max(now, timer.due);
        timer.then();
      }
      now = end;
    },
    rests: () => [...timers.values()].some(({ delay }) => [2000, 10000].includes(delay)),
    async hasty(work) { use(real); try { return await work(); } finally { use(still); } },
  };
})()"""


@contextmanager
def still_page(browser: Browser) -> Iterator[Page]:
    """A page of its own profile, in which time stands still."""
    with new_context(browser) as context:
        context.add_init_script(_CLOCK.replace("START", str(int(NOW.timestamp() * 1000))))
        yield context.new_page()


@contextmanager
def fresh(page: Page, url: str) -> Iterator[Page]:
    """The same page for another test, not yet opened; at the end, nothing bad may have happened."""
    page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    with Watched(url).watching(page):
        yield page
        page.goto("about:blank")


def opened(page: Page, server: StatusServer) -> None:
    """Open the page, and wait until it has shown something and follows the records."""
    page.goto(server.url)
    expect(page.locator("#contact")).to_have_text("Connected")
    if server.streaming and server.status["store"]["stream"]:
        expect(page.locator("#timeline h2 small")).to_have_text("live")
    rest(page)


def run_clock(page: Page, milliseconds: int) -> None:
    """Let time pass, whatever the page waits for meanwhile."""
    page.evaluate("(span) => clock.pass(span)", milliseconds)


def rest(page: Page) -> None:
    """Wait until the page has made something of the last answer."""
    eventually(lambda: bool(page.evaluate("() => clock.rests()")), what="the page's rest")


def pass_time(page: Page, seconds: int) -> None:
    """Let time pass, and each question be answered at once."""
    for _ in range(2 * seconds):
        run_clock(page, 500)
        rest(page)


def look_again(page: Page) -> None:
    """Let the page ask once more."""
    pass_time(page, 2)
