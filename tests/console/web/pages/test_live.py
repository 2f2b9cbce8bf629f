"""Open pages: changes appear without a reload, and an outdated page says so."""

from __future__ import annotations

import re
from datetime import timedelta

from playwright.sync_api import Page, expect
from support.console.records import FakeVm
from support.console.stage import ConsoleStage


def _live(page: Page) -> None:
    expect(page.locator("#live")).to_have_attribute("data-state", "live")


def test_an_event_comes_onto_an_open_page(stage: ConsoleStage, page: Page) -> None:
    """A new event appears within seconds, a screen reader gets the new headline, and the focus
    stays.
    """
    vm = FakeVm()
    stage.put(vm.heartbeat(now=stage.now))
    page.goto(stage.url)
    _live(page)
    expect(page.locator("h1")).to_have_text("Nothing is coming")
    page.locator(".counts a").first.focus()
    stage.put(vm.event("E-NEW", not_before=stage.moment(600), now=stage.now))
    expect(page.locator("h1")).to_have_text("1 event is scheduled")
    expect(page.locator("#announcer")).to_contain_text("1 event is scheduled")
    expect(page.locator(".events h4 a")).to_have_text(["Reboot of web-1"])
    assert page.evaluate("document.activeElement.getAttribute('href')") == "/fleet?contact=heard"
    stage.put(vm.event("E-NEW", transition="ended", now=stage.now + timedelta(seconds=1)))
    expect(page.locator("h1")).to_have_text("Nothing is coming")
    expect(page.locator(".over")).to_contain_text("Completed")


def test_what_somebody_unfolds_stays_unfolded(stage: ConsoleStage, page: Page) -> None:
    """A change of the event does not close what a person has unfolded."""
    named, other = FakeVm(name="named"), FakeVm(name="other")
    stage.put(named.event("E", now=stage.now), other.event("E", resources=["named"], now=stage.now))
    page.goto(f"{stage.url}/events/E")
    _live(page)
    page.get_by_text("Seen by 1 VM that it does not name").click()
    expect(page.get_by_role("link", name="other").first).to_be_visible()
    later = stage.now + timedelta(seconds=2)
    stage.put(named.event("E", transition="started", now=later))
    expect(page.locator(".count")).to_have_text("started")
    expect(page.locator("#others a").first).to_be_visible()


def test_a_page_that_has_lost_the_console_says_since_when(stage: ConsoleStage, page: Page) -> None:
    """Without the console the page keeps its content without colour, and says how old it is."""
    stage.put(FakeVm().heartbeat(now=stage.now))
    page.clock.install()
    page.goto(stage.url)
    _live(page)
    stage.stop()
    expect(page.locator("#live")).not_to_have_attribute("data-state", "live")
    for _ in range(8):
        page.clock.run_for(5000)
    expect(page.locator("#stale")).to_contain_text("No contact with the console since ")
    expect(page.locator("#stale")).to_contain_text("it cannot be reached")
    expect(page.locator("#live")).to_have_text("no contact")
    expect(page).to_have_title("No contact · Nothing is coming · Scheduled events")
    expect(page.locator(".counts li").first).to_contain_text("1")


_STREAM_THAT_CAN_BE_SILENT = """
const listen = EventSource.prototype.addEventListener;
EventSource.prototype.addEventListener = function (name, act) {
  listen.call(this, name, (event) => { if (!window.silent) act(event); });
};
"""


def test_a_console_that_hangs_is_known_by_its_silence(stage: ConsoleStage, page: Page) -> None:
    """A page whose stream is open and silent is not green for long."""
    stage.put(FakeVm().heartbeat(now=stage.now))
    page.clock.install()
    page.add_init_script(_STREAM_THAT_CAN_BE_SILENT)
    page.goto(stage.url)
    _live(page)
    page.route("**/*", lambda _: None)  # no request is answered any more
    page.clock.run_for(4000)
    _live(page)
    page.evaluate("() => { window.silent = true; }")
    page.clock.run_for(13_000)
    expect(page.locator("#live")).to_have_attribute("data-state", "lost")
    expect(page.locator("#stale")).to_contain_text("it has said nothing for 12 seconds")
    assert page.title().startswith("No contact · ")
    page.unroute_all(behavior="ignoreErrors")


def test_a_page_that_cannot_be_drawn_is_not_green(stage: ConsoleStage, page: Page) -> None:
    """A page whose request fails is not green although its stream works; it says when it was last
    drawn, also in print.
    """
    vm = FakeVm()
    stage.put(vm.heartbeat(now=stage.now))
    page.clock.install()
    page.goto(stage.url)
    _live(page)
    page.route(f"{stage.url}/", lambda route: route.fulfill(status=503))
    stage.put(vm.event("E", now=stage.now))
    page.clock.run_for(2000)
    expect(page.locator("#live")).to_have_text("connecting")
    for _ in range(4):
        page.evaluate("dispatchEvent(new Event('beat'))")
        page.clock.run_for(5000)
    expect(page.locator("#live")).to_have_attribute("data-state", "lost")
    expect(page.locator("#stale")).to_contain_text("it answered with status 503")
    expect(page.locator("#drawn")).to_contain_text("Drawn at 02:14:28 UTC")
    stage.now += timedelta(minutes=7)
    page.unroute_all()
    page.clock.run_for(6000)
    _live(page)
    expect(page.locator("h1")).to_contain_text("1 event is scheduled")
    expect(page).not_to_have_title(re.compile("No contact"))
    page.emulate_media(media="print")
    expect(page.locator("#drawn")).to_contain_text("Drawn at 02:21:28 UTC")


def test_a_form_keeps_its_text_where_the_console_is_away(stage: ConsoleStage, page: Page) -> None:
    """If the console does not answer, a press of the button says why nothing was sent, and the form
    keeps its text.
    """
    vm = FakeVm()
    stage.put(vm.event("E", not_before=stage.moment(600), now=stage.now))
    stage.takes_commands(vm)
    page.goto(f"{stage.url}/events/E")
    _live(page)
    page.get_by_label("Reason").fill("window of tonight")
    stage.stop()
    page.get_by_role("button", name="Leave it").click()
    expect(page.locator("[data-unsent]")).to_contain_text("Nothing was sent")
    expect(page.locator("[data-unsent]")).to_contain_text("the console cannot be reached")
    expect(page.get_by_label("Reason")).to_have_value("window of tonight")


def test_the_keyboard_reaches_search_and_decision(stage: ConsoleStage, page: Page) -> None:
    """A slash searches from every page, `d` goes to the first due event and to its reason,
    Ctrl+Enter sends it, and the result has the focus.
    """
    vm = FakeVm()
    stage.put(vm.event("E", not_before=stage.moment(600), now=stage.now))
    stage.takes_commands(vm)
    page.goto(stage.url)
    page.keyboard.press("d")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Reboot of web-1")
    page.keyboard.press("d")
    page.keyboard.type("low traffic")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#decision")).to_contain_text("Left until its time")
    expect(page.locator("#decision-title")).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("#filters input[name=q]")).to_be_focused()
    page.keyboard.type("web")
    expect(page.locator("tbody th")).to_have_text(["web-1"])


def test_the_keyboard_reaches_the_history_and_the_list_of_keys(
    stage: ConsoleStage, page: Page
) -> None:
    """`h` goes to the periods of the history and its exports from every page; `?` lists the
    keys.
    """
    page.goto(f"{stage.url}/audit")
    page.keyboard.press("?")
    expect(page.locator(".keys")).to_be_focused()
    expect(page.locator(".keys")).to_contain_text("h to the history")
    page.keyboard.press("h")
    expect(page.get_by_role("link", name="last night")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/history\?since="))
    page.keyboard.press("h")
    for _ in range(4):
        page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="CSV")).to_be_focused()


def test_local_time_is_there_on_demand_and_remembered(stage: ConsoleStage, page: Page) -> None:
    """Times are UTC until a person chooses local time, which a reload keeps."""
    stage.put(FakeVm().event("E", not_before=stage.moment(600), now=stage.now))
    page.goto(f"{stage.url}/events/E")
    when = page.locator(".answer-count time.clock")
    expect(when).to_have_text("02:24:28 UTC")
    page.get_by_role("button", name="show local time").click()
    expect(when).to_have_text("03:24:28")
    page.reload()
    expect(when).to_have_text("03:24:28")


def test_what_is_printed_is_the_page_without_its_controls(stage: ConsoleStage, page: Page) -> None:
    """A printed page is black on white, with folded parts and the time, and without forms, filters
    and links.
    """
    vm, other = FakeVm(), FakeVm(name="other")
    fields = {"resources": [vm.name], "not_before": stage.moment(600), "now": stage.now}
    stage.put(vm.event("E", **fields), other.event("E", **fields))
    stage.takes_commands(vm)
    page.emulate_media(media="print", color_scheme="dark")
    page.goto(f"{stage.url}/events/E")
    _live(page)
    expect(page.locator("#lines")).to_contain_text("until 02:24:28 UTC")
    expect(page.locator("#drawn")).to_contain_text("Drawn at 02:14:28 UTC")
    for name in (
        "nav[aria-label=Pages]",
        "#live",
        "#zone",
        "#decide",
        ".take",
        ".keys",
        "footer nav",
    ):
        expect(page.locator(name)).to_be_hidden()
    expect(page.locator("#others a")).to_be_visible()
    style = page.locator(".card").first.evaluate(
        "card => { const { color, backgroundColor } = getComputedStyle(card);"
        " return [color, backgroundColor]; }"
    )
    assert style == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    page.goto(f"{stage.url}/history")
    expect(page.locator("#past tr")).to_have_count(1)
    expect(page.locator("#filters")).to_be_hidden()
    page.set_viewport_size({"width": 720, "height": 1000})  # a sheet of A4
    wide = "node => node.scrollWidth - node.clientWidth"
    assert page.locator(".scroll").evaluate(wide) == 0
