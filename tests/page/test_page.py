"""How the page behaves as time passes, as news comes, and in the hands of a person.

Its clock moves only when a test moves it; the bridge's answers are the test's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import resources

import pytest
from browser import PHONE, watched_page
from eventually import eventually
from playwright.sync_api import Browser, Page, expect
from status_fixture import NOW, StatusServer, blind, event, moment, record, sink, status

HEADLINE = "#state h2"
LOST = "No contact with the bridge"


# The page rests while its timer for the next question runs: only then may its time pass, for the
# answers take real time.
RESTS = """() => {
  const [set, clear, pending] = [window.setTimeout, window.clearTimeout, new Map()];
  window.setTimeout = (then, delay) => {
    const id = set(() => { pending.delete(id); then(); }, delay);
    pending.set(id, delay);
    return id;
  };
  window.clearTimeout = (id) => { pending.delete(id); clear(id); };
  window.rests = () => [...pending.values()].some((delay) => [2000, 10000].includes(delay));
}"""


@pytest.fixture
def page(browser: Browser, server: StatusServer) -> Iterator[Page]:
    """A page whose clock stands still at the bridge's now; not yet opened."""
    with watched_page(browser, server.url) as made:
        made.clock.install(time=NOW - timedelta(hours=1))
        made.clock.pause_at(NOW)
        made.add_init_script(f"({RESTS})()")
        yield made


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


# Time


def test_the_countdown_ticks_each_second(page: Page, server: StatusServer) -> None:
    """In the big state and in the list alike."""
    server.status = status(events=[event()])
    opened(page, server)
    figures = page.locator("#state .count time, #events summary time")
    expect(figures).to_have_text(["14:32", "14:32"])
    page.clock.run_for(1_000)
    expect(figures).to_have_text(["14:31", "14:31"])
    page.clock.run_for(900)
    expect(figures).to_have_text(["14:31", "14:31"])


def test_the_clock_is_the_bridges(page: Page, server: StatusServer) -> None:
    """A device whose clock is a day off shows the same countdown and the same ages."""
    page.clock.set_system_time(NOW + timedelta(days=1))
    server.status = status(events=[event()])
    opened(page, server)
    expect(page.locator("#state .count time")).to_have_text("14:32")
    expect(page.locator("#state .say")).to_contain_text("IMDS answered just now.")


def test_an_event_that_is_due_says_so(page: Page, server: StatusServer) -> None:
    """Azure may be late: there is no countdown below zero."""
    server.status = status(events=[event(notBefore=moment(1))])
    opened(page, server)
    server.status = server.status | {"now": moment(3)}
    look_again(page)
    expect(page.locator("#state .count time")).to_have_text("due now")
    expect(page.locator("#state .count")).to_contain_text("It may start at any moment, since 03:14")


def test_all_is_told_in_utc_where_the_device_is(browser: Browser, server: StatusServer) -> None:
    """No time is shown twice there."""
    server.status = status(events=[event()])
    with watched_page(browser, server.url, time_zone="UTC") as page:
        page.goto(server.url)
        expect(page.locator("#state .count p")).to_have_text("until it may start, 02:29:00 UTC")


# Contact


def test_ten_seconds_without_contact_are_told(page: Page, server: StatusServer) -> None:
    """Not before, with what is still known; and contact that comes back is shown at once."""
    server.status = status(events=[event()])
    opened(page, server)
    server.down = True
    server.hang_up()
    pass_time(page, 10)
    expect(page.locator("#contact")).to_have_text("Retrying")
    expect(page.locator(HEADLINE)).to_have_text("Event coming")
    pass_time(page, 1)
    expect(page.locator(HEADLINE)).to_have_text(LOST)
    expect(page.locator("#state .say")).to_contain_text("it answered with status 503")
    expect(page.locator("#state .known")).to_contain_text("Last known: Freeze for this VM, coming")
    server.down = False
    look_again(page)
    expect(page.locator(HEADLINE)).to_have_text("Event coming")


def test_a_bridge_that_hangs_is_not_waited_for(page: Page, server: StatusServer) -> None:
    """After five seconds without an answer the page tries anew."""
    server.status = status()
    opened(page, server)
    server.stuck = True
    with page.expect_request("**/api/v1/status"):
        page.clock.run_for(2_000)
    page.clock.run_for(5_000)
    expect(page.locator("#contact")).to_have_text("Retrying")
    page.clock.run_for(4_000)
    expect(page.locator(HEADLINE)).to_have_text(LOST)
    expect(page.locator("#state .say")).to_contain_text("no answer within 5 s")


def test_a_page_out_of_sight_asks_seldom(page: Page, server: StatusServer) -> None:
    """Every ten seconds, and it holds no stream; in sight again, it looks at once."""
    server.status = status()
    opened(page, server)
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', { configurable: true,"
    hide += " get: () => hidden }); document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    look_again(page)
    expect(page.locator("#timeline h2 small")).to_have_text("every few seconds")
    asked = server.asked.count("/api/v1/status")
    pass_time(page, 9)
    assert server.asked.count("/api/v1/status") == asked
    with page.expect_response("**/api/v1/status"):
        page.evaluate(hide, False)
    expect(page.locator("#timeline h2 small")).to_have_text("live")


# News


def test_a_live_record_appears_by_itself(page: Page, server: StatusServer) -> None:
    """Though no time passes for the page: the stream brings it, and the status is asked for."""
    server.status = status()
    opened(page, server)
    server.status = status(events=[event()])
    server.push(record("event.scheduled", 7))
    expect(page.locator("#timeline li h3")).to_have_text(["Freeze announced"])
    expect(page.locator(HEADLINE)).to_have_text("Event coming")


def test_without_a_stream_the_records_are_asked_for(page: Page, server: StatusServer) -> None:
    """Where the bridge has no place left for another listener, each look brings what is new."""
    server.status, server.streaming = status(), False
    server.records = [record("event.scheduled", 6)]
    opened(page, server)
    server.push(record("event.started", 7))
    look_again(page)
    expect(page.locator("#timeline li h3")).to_have_text(["Freeze started", "Freeze announced"])
    assert "/api/v1/events?after=6" in server.asked


def test_a_stream_that_breaks_loses_nothing(page: Page, server: StatusServer) -> None:
    """What is committed meanwhile comes, once."""
    server.status = status()
    server.records = [record("event.scheduled", 6)]
    opened(page, server)
    server.streaming = False
    server.hang_up()
    expect(page.locator("#timeline h2 small")).to_have_text("every few seconds")
    server.push(record("event.started", 7))
    look_again(page)
    expect(page.locator("#timeline li h3")).to_have_text(["Freeze started", "Freeze announced"])


def test_a_new_store_begins_a_new_time_line(page: Page, server: StatusServer) -> None:
    """Its sequence begins anew; nothing of the old one stays."""
    server.status = status()
    server.records = [record("event.scheduled", 600)]
    opened(page, server)
    other = "5b0c2d1e-0000-4000-8000-000000000001"
    server.status = status(store=status()["store"] | {"stream": other})
    server.records = [record("bridge.store-reset", 1, storeReset={"reason": "x"})]
    server.records[0]["stream"] = other
    look_again(page)
    expect(page.locator("#timeline li h3")).to_have_text(["The store was lost and begun anew"])


def test_only_the_big_state_is_announced(page: Page, server: StatusServer) -> None:
    """A sink that fails and a countdown that ticks do not interrupt somebody who listens."""
    server.status = status(events=[event()])
    opened(page, server)
    words = page.locator("[role=status]")
    expect(words).to_have_text("Event coming: Freeze, not before 03:29:00")
    page.evaluate(
        "() => { window.said = 0; new MutationObserver(() => { window.said += 1; })"
        ".observe(document.querySelector('[role=status]'), { childList: true, subtree: true, "
        "characterData: true }); }"
    )
    server.status = status(events=[event()], sinks=[sink(state="failing", reason="gone")])
    look_again(page)
    expect(page.locator(".pill")).to_have_text("Failing")
    assert page.evaluate("window.said") == 0
    server.status = blind()
    look_again(page)
    expect(words).to_have_text("Not looking")
    assert page.locator("[aria-live], [role=alert], [role=status]").count() == 1


# A person


def test_everything_is_reached_by_keyboard(page: Page, server: StatusServer) -> None:
    """The skip link comes first, every stop is visible, and nothing holds the focus."""
    server.status = status(
        events=[event(), event(eventId="B", affectsThisVm=False)], sinks=[sink(state="paused")]
    )
    opened(page, server)
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    stops = []
    for _ in range(12):
        page.keyboard.press("Tab")
        stops.append(
            page.evaluate(
                "() => { const it = document.activeElement, box = it.getBoundingClientRect();"
                " return [it.localName, it.textContent.trim().split(/[ :]/)[0],"
                " getComputedStyle(it).outlineStyle !== 'none' && box.width > 0 && box.top >= 0"
                " && box.left >= 0 && box.right <= innerWidth]; }"
            )
        )
    assert stops == [
        ["a", "Skip", True],
        ["a", "and", True],
        ["a", "mqtt", True],
        ["summary", "Freeze", True],
        ["summary", "Freeze", True],
        ["a", "Status", True],
        ["a", "Records", True],
        ["a", "Metrics", True],
        ["a", "Health", True],
        ["a", "Readiness", True],
        ["body", stops[-2][1], stops[-2][2]],
        ["a", "Skip", True],
    ]
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "state"


def test_what_is_unfolded_stays_so(page: Page, server: StatusServer) -> None:
    """A thousand names unfold by keyboard; news changes neither that nor the focus."""
    names = ["web_3", *(f"db_{number}" for number in range(1_000))]
    server.status = status(events=[event(resources=names)])
    opened(page, server)
    assert page.locator(".names li").count() == 12
    page.get_by_text("989 more").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".names li")).to_have_count(1_001)
    server.status = status(events=[event(resources=names, revision=2)])
    look_again(page)
    expect(page.locator("#events")).to_contain_text("revision 2")
    assert page.evaluate("document.activeElement.textContent") == "989 more"
    page.keyboard.press("Enter")
    expect(page.locator(".names li")).to_have_count(12)


def test_texts_from_outside_stay_texts(page: Page, server: StatusServer) -> None:
    """Markup is shown as it is written, and what cannot be seen is written out."""
    bad = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>\u202etxt.exe\u0000"
    seen = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>\\u202etxt.exe\\u0000"
    server.status = status(
        vm=status()["vm"] | {"name": bad},
        events=[event(description=bad, resources=[bad], eventType=bad, eventSource=bad)],
        sinks=[sink(name=bad, state="failing", reason=bad)],
    )
    server.records = [record("event.scheduled", 1, event=event(eventType=bad))]
    opened(page, server)
    for where in ("h1", "#state .what", "blockquote", ".names", "#timeline h3", ".sink h3"):
        expect(page.locator(where)).to_contain_text(seen)
    assert page.locator("img").count() == 0
    assert page.evaluate("window.hit") is None
    assert seen in page.title()


def test_who_wants_no_motion_gets_none(page: Page, server: StatusServer) -> None:
    """Nothing slides, fades or drains there."""
    page.emulate_media(reduced_motion="reduce")
    server.status = status(events=[event()])
    opened(page, server)
    moving = "[...document.querySelectorAll('*')].filter((each) => { const style ="
    moving += " getComputedStyle(each); return style.transitionDuration !== '0s' ||"
    moving += " style.animationName !== 'none'; }).length"
    assert page.evaluate(moving) == 0


def test_a_sink_that_pauses_says_what_to_do(page: Page, server: StatusServer) -> None:
    """In words, with what waits; the big state is none of its business."""
    reason = "the destination answered 410 Gone"
    server.status = status(sinks=[sink(state="paused", reason=reason, backlog=3, dead=1)])
    opened(page, server)
    row = page.locator(".sink")
    expect(row).to_contain_text("Paused")
    expect(row).to_contain_text(reason)
    expect(row.locator("dl div")).to_have_text(
        ["Waiting3", "Lag4 ms", "Dead1", "Delivered1,890", "Last28 s ago"]
    )
    expect(page.locator(HEADLINE)).to_have_text("All clear")
    eventually(lambda: page.title() == "All clear · web_3 · Scheduled events", what="the title")


# The file


def test_the_page_is_one_file_that_the_policy_can_allow() -> None:
    """One script, one style, nothing inline besides, and no way to make markup of a text."""
    text = resources.files("bridge").joinpath("static", "index.html").read_text("utf-8")
    assert (text.count("<script"), text.count("<style"), text.count("<link")) == (1, 1, 1)
    forbidden = r"\sstyle=|\son\w+=\"|innerHTML|outerHTML|insertAdjacent|document\.write|eval\("
    forbidden += r"|https?://(?!www\.w3\.org/)|@import|url\(|localStorage|document\.cookie"
    assert re.findall(forbidden, text) == []
