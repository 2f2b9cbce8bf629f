"""The page in the hands of a person, and what it is made of."""

import re
from importlib import resources

from playwright.sync_api import Page, expect
from support.eventually import eventually
from support.page.browser import PHONE
from support.page.status_fixture import StatusServer
from support.page.status_samples import event, record, sink, status
from support.page.still_page import look_again, opened


def test_everything_is_reached_by_keyboard(page: Page, server: StatusServer) -> None:
    """The skip link comes first, every stop is visible, and nothing holds the focus."""
    server.status = status(
        events=[event(), event(eventId="B", affectsThisVm=False)], sinks=[sink(state="paused")]
    )
    opened(page, server)
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    stops = []
    for _ in range(10):
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
    ]
    for _ in range(9):
        page.keyboard.press("Shift+Tab")
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
    expect(page.locator("#state h2")).to_have_text("All clear")
    eventually(lambda: page.title() == "All clear · web_3 · Scheduled events", what="the title")


def test_the_page_is_one_file_that_the_policy_can_allow() -> None:
    """One script, one style, nothing inline besides, and no way to make markup of a text."""
    text = resources.files("bridge.api").joinpath("static", "index.html").read_text("utf-8")
    assert (text.count("<script"), text.count("<style"), text.count("<link")) == (1, 1, 1)
    forbidden = r"\sstyle=|\son\w+=\"|innerHTML|outerHTML|insertAdjacent|document\.write|eval\("
    forbidden += (
        r"|https?://(?!www\.w3\.org/)|@import|url\(|localStorage|document\.cookie|(?:src|href)=\"//"
    )
    assert re.findall(forbidden, text) == []
