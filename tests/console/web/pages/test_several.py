"""Several events at once: they are listed and counted first, then each is decided as it was
seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect
from support.console.decision_bench import audit, made_key
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.page.browser import check_views, watched_page


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ConsoleStage]:
    """A console with a key, where everybody may decide."""
    key, _ = made_key(tmp_path / "keys")
    with ConsoleStage(tmp_path, KEY=str(key)) as made:
        yield made


@pytest.fixture
def page(browser: Browser, stage: ConsoleStage) -> Iterator[Page]:
    """A page, not yet opened."""
    with watched_page(browser, stage.url) as made:
        yield made


def wait_for_decisions(stage: ConsoleStage, count: int, *, site: str = "dublin") -> list[FakeVm]:
    """Announce so many events of one VM each, the first with the least time left."""
    vms = [FakeVm(name=f"{site}-{number}", site=site) for number in range(count)]
    for number, vm in enumerate(vms):
        soon = stage.moment(300 + number)
        stage.put(vm.event(f"E-{vm.name}", event_type="Freeze", not_before=soon, now=stage.now))
        stage.takes_commands(vm)
    return vms


def test_events_are_counted_filtered_and_decided_at_once(stage: ConsoleStage, page: Page) -> None:
    """The page shows the number, then each event with its fingerprint, and a result for each."""
    vms = wait_for_decisions(stage, 3)
    wait_for_decisions(stage, 1, site="zurich")
    page.goto(stage.url)
    page.get_by_role("link", name="Decide several at once").click()
    expect(page.locator("h1")).to_have_text("4 events wait for a decision")
    page.locator("select[name=site]").select_option("dublin")
    expect(page.locator("h1")).to_have_text("3 events wait for a decision")
    assert "site=dublin" in page.url
    check_views(page, "console-decide", every=True)
    ticks = page.locator("input.tick")
    onward = page.locator("#onward")
    expect(onward).to_be_disabled()
    page.get_by_role("button", name="All").click()
    expect(onward).to_have_text("Go on with 3 events")
    page.get_by_role("button", name="None").click()
    expect(page.locator("#ticked")).to_have_text("0 of 3 events ticked")
    ticks.nth(0).check()
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("#ticked")).to_have_text("2 of 3 events ticked")
    page.get_by_role("button", name="Go on with 2 events").click()
    expect(page.locator("h1")).to_have_text("Decide 2 events at once")
    expect(page.locator(".title")).to_contain_text("They name 2 VMs")
    expect(page.locator(".chosen h2 > span").first).to_have_text("Freeze of dublin-0: short pause")
    items = stage.http.get(f"{stage.url}/api/v1/events?site=dublin").json()["items"]
    shown = page.locator(".chosen .mono", has_text="sha256:")
    expect(shown).to_have_text([item["fingerprint"] for item in items[:2]])
    expect(page.get_by_role("button", name="Leave 2 events until their times")).to_be_visible()
    check_views(page, "console-confirm", every=True)
    changed = vms[1].event(
        "E-dublin-1",
        transition="updated",
        event_type="Reboot",
        not_before=stage.moment(301),
        now=stage.now + timedelta(seconds=1),
    )
    stage.put(changed)
    page.get_by_label("Reason").fill("window of tonight")
    page.get_by_role("button", name="Approve 2 events now").click()
    expect(page.locator("h1")).to_have_text("1 of 2 events approved")
    expect(page.locator("h1")).to_be_focused()
    expect(page.locator(".results a").first).to_have_text("Freeze of dublin-0")
    results = page.locator(".results li")
    expect(results.nth(0)).to_contain_text("Approved: a VM is being asked.")
    expect(results.nth(1)).to_contain_text("Nothing is signed and nothing is sent.")
    check_views(page, "console-decided", every=True)
    assert [(row["action"], row["eventId"]) for row in audit(stage)] == [
        ("approve", "E-dublin-0"),
        ("refused", "E-dublin-1"),
    ]
    page.get_by_role("link", name="Show what still waits.").click()
    expect(page.locator("h1")).to_have_text("3 events wait for a decision")


def test_three_of_twenty_are_left_by_keyboard_alone(stage: ConsoleStage, page: Page) -> None:
    """Events are found by a search, ticked with `x` and left with a reason by keyboard; only ticked
    ones are decided.
    """
    wait_for_decisions(stage, 17)
    wait_for_decisions(stage, 3, site="zurich")
    page.goto(stage.url)
    for key in ("d", "d", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.keyboard.press("/")
    page.keyboard.type("zurich-*")
    page.keyboard.press("Enter")
    expect(page.locator("li.event")).to_have_count(3)
    expect(page.locator("li.event a").first).to_be_focused()
    for key in ("x", "j", "x", "j", "x"):
        page.keyboard.press(key)
    expect(page.locator("#ticked")).to_have_text("3 of 3 events ticked")
    page.keyboard.press("d")
    expect(page.locator("#onward")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Decide 3 events at once")
    page.keyboard.press("d")
    page.keyboard.type("low traffic")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("3 of 3 events left until their times")
    expect(page.locator("h1")).to_be_focused()
    found = stage.http.get(f"{stage.url}/api/v1/events?limit=50").json()["items"]
    left = {each["resources"][0]["name"] for each in found if each["decision"]["state"] == "left"}
    assert left == {"zurich-0", "zurich-1", "zurich-2"}


def test_an_eviction_is_listed_and_does_not_wait(stage: ConsoleStage, page: Page) -> None:
    """The list counts waiting events as the first page does, without evictions."""
    wait_for_decisions(stage, 1)
    spot = FakeVm(name="spot")
    later = stage.moment(600)
    stage.put(spot.event("E", event_type="Preempt", not_before=later, now=stage.now))
    stage.takes_commands(spot)
    page.goto(stage.url)
    expect(page.locator("h1")).to_have_text("1 decision is due")
    page.goto(f"{stage.url}/decide")
    expect(page.locator("h1")).to_have_text("1 event waits for a decision")
    expect(page.locator(".title")).to_contain_text("1 event more is for your information")
    expect(page.locator("li.event")).to_have_count(2)


def test_events_can_be_left_at_once_without_javascript(
    stage: ConsoleStage, browser: Browser
) -> None:
    """Several events can be left without JavaScript, and sending the form again changes nothing."""
    wait_for_decisions(stage, 2)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{stage.url}/decide?q=dublin-")
    page.locator("#onward").click()
    expect(page.get_by_role("alert").first).to_contain_text("Tick at least one event")
    for tick in page.locator("input.tick").all():
        tick.check()
    page.locator("#onward").click()
    page.get_by_label("Reason").fill("low traffic")
    page.get_by_role("button", name="Leave 2 events").click()
    expect(page.locator("h1")).to_have_text("2 of 2 events left until their times")
    rows = len(audit(stage))
    page.reload()
    expect(page.locator("h1")).to_have_text("2 of 2 events left until their times")
    assert len(audit(stage)) == rows == 2
    context.close()


def test_at_most_twenty_are_decided_at_once(stage: ConsoleStage, page: Page) -> None:
    """With more than twenty ticked events, the button and the next page say that it is too many."""
    wait_for_decisions(stage, 22)
    page.goto(f"{stage.url}/decide")
    page.get_by_role("button", name="All").click()
    expect(page.locator("#onward")).to_have_text("At most 20 at once: 22 are ticked")
    expect(page.locator("#onward")).to_be_disabled()
    for number in (3, 4, 5):
        page.locator("input.tick").nth(number).uncheck()
    page.get_by_role("button", name="Go on with 19 events").click()
    expect(page.locator(".chosen > li")).to_have_count(19)
    several = "&".join(f"event=E-dublin-{number}" for number in range(22))
    page.goto(f"{stage.url}/decide/confirm?{several}")
    expect(page.get_by_role("alert").first).to_contain_text("At most 20 events")
    expect(page.locator(".chosen > li")).to_have_count(20)


def test_the_confirmation_does_not_change_under_the_hand(stage: ConsoleStage, page: Page) -> None:
    """An event that comes in during the confirmation is not in the form."""
    wait_for_decisions(stage, 1)
    page.goto(f"{stage.url}/decide/confirm?event=E-dublin-0")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    with page.expect_response(lambda answer: "/decide/confirm" in answer.url):
        wait_for_decisions(stage, 1, site="zurich")
    expect(page.locator(".chosen > li")).to_have_count(1)
    page.get_by_label("Reason").fill("")
    page.get_by_role("button", name="Leave 1 event").click()
    expect(page.locator(".chosen > li")).to_have_count(1)


@pytest.mark.parametrize("path", ["/decide?", "/decide/confirm?event={bad}&"])
def test_texts_from_outside_stay_texts_in_lists(stage: ConsoleStage, page: Page, path: str) -> None:
    """Markup in names, types, ids and the filter is shown as text."""
    bad = "<script>window.hit=1</script>\u202e"
    seen = "<script>window.hit=1</script>\\u202e"
    vm = FakeVm(name=bad, site=bad)
    stage.put(vm.event(bad, event_type=bad, not_before=stage.moment(600), now=stage.now))
    stage.takes_commands(vm)
    page.goto(stage.url + path.format(bad=quote(bad)))
    expect(page.locator("main")).to_contain_text(seen)
    page.goto(
        f"{stage.url}{path.format(bad=quote(bad))}q=<script>window.hit=1</script>&type=%22%3E%3Cb%3E"
    )
    assert page.evaluate("window.hit") is None
    assert page.locator("main script, main b").count() == 0
