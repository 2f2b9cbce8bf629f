"""The history: past events with filters, and the same data as JSON and CSV."""

from __future__ import annotations

import csv
import re
from datetime import timedelta

import pytest
from playwright.sync_api import Page, Route, expect
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.page.browser import check_views


def happened(
    stage: ConsoleStage,
    event_id: str,
    vm: FakeVm,
    *,
    hours_ago: float,
    event_type: str = "Reboot",
    down: float | None = None,
    by: str | None = None,
) -> None:
    """Record an event that began so long ago and ended two minutes later."""
    begin = stage.now - timedelta(hours=hours_ago)
    fields = {"event_type": event_type}
    stage.put(vm.event(event_id, now=begin, **fields))
    if by is not None:
        stage.put(vm.receipt(event_id, "confirmed", now=begin, actor=by))
    stage.put(vm.event(event_id, transition="started", now=begin + timedelta(minutes=1), **fields))
    end = begin + timedelta(minutes=2)
    measured = {"downtimeSeconds": down}
    stage.put(vm.event(event_id, transition="ended", now=end, observation=measured, **fields))


@pytest.fixture
def past(stage: ConsoleStage) -> ConsoleStage:
    """A night with three ended events of two sites, and an open one."""
    db = FakeVm(name="db-3", site="dublin", tags={"role": "db"})
    web = FakeVm(name="web-17", site="zurich", tags={"role": "web"})
    happened(stage, "E-OLD", db, hours_ago=30, by="rule:patching")
    happened(stage, "E-NIGHT", db, hours_ago=1, down=42.0, by="mia@example.com")
    fields = {"actor": "mia@example.com", "rsn": "CHG-0815 \u00e9", "now": stage.now}
    stage.put(db.receipt("E-NIGHT", "accepted", **fields))
    happened(stage, "E-SPOT", web, hours_ago=2, event_type="Preempt")
    stage.put(web.event("E-OPEN", now=stage.now, not_before=stage.moment(600)))
    return stage


def ids(stage: ConsoleStage, query: str) -> list[str]:
    """Return the ids that the API finds."""
    answer = stage.http.get(f"{stage.url}/api/v1/events?{query}", timeout=20)
    assert answer.status_code == 200, answer.text
    return [item["eventId"] for item in answer.json()["items"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("since=2026-03-02T00:00:00Z&until=2026-03-02T01:00:00Z", ["E-SPOT"]),
        ("since=2026-03-02T01:00:00Z&state=over", ["E-NIGHT"]),
        ("until=2026-03-02T00:00", ["E-OLD"]),
        ("vm=DB-3", ["E-NIGHT", "E-OLD"]),
        ("tag=role:db", ["E-NIGHT", "E-OLD"]),
        ("tag=ROLE&state=open", ["E-OPEN"]),
        ("q=tag%3Drole:web&state=over", ["E-SPOT"]),
        ("q=db-*", ["E-NIGHT", "E-OLD"]),
        ("q=*-1?&state=open", ["E-OPEN"]),
        ("by=mia", ["E-NIGHT"]),
        ("q=chg-0815", ["E-NIGHT"]),
        ("by=rule:patching", ["E-OLD"]),
        ("status=completed&type=preempt", ["E-SPOT"]),
        ("site=zurich", ["E-OPEN", "E-SPOT"]),
    ],
)
def test_past_events_are_filtered(past: ConsoleStage, query: str, found: list[str]) -> None:
    """Past events are filtered by time, VM, tag, pattern, approver, end, type and site."""
    assert ids(past, query) == found


def test_an_event_says_when_it_was_and_what_it_cost(past: ConsoleStage) -> None:
    """Lists and CSV have the times and the cost of an event; no text in the CSV is a formula."""
    (item,) = past.http.get(f"{past.url}/api/v1/events?q=E-NIGHT", timeout=20).json()["items"]
    assert (item["startedAt"], item["endedAt"], item["downtimeSeconds"], item["noticeSeconds"]) == (
        "2026-03-02T01:15:28.000Z",
        "2026-03-02T01:16:28.000Z",
        42.0,
        900.0,
    )
    stage_vm = FakeVm(name="=cmd()")
    past.put(stage_vm.event("+E", now=past.now))
    answer = past.http.get(f"{past.url}/api/v1/events?format=csv", timeout=20)
    assert answer.headers["content-type"].startswith("text/csv")
    rows = {row["eventId"]: row for row in csv.DictReader(answer.text.splitlines())}
    assert set(rows) == {"'+E", "E-OPEN", "E-NIGHT", "E-SPOT", "E-OLD"}
    assert rows["'+E"]["resources"] == "'=cmd()"
    assert rows["E-NIGHT"]["decision.by"] == "mia@example.com"
    assert rows["E-NIGHT"]["downtimeSeconds"] == "42.0"
    limited = past.http.get(f"{past.url}/api/v1/events?format=csv&limit=2", timeout=20)
    assert len(limited.text.splitlines()) == 3


def test_the_page_filters_by_group_and_refuses_what_it_does_not_know(past: ConsoleStage) -> None:
    """The page filters by group, and refuses an unknown parameter."""
    assert "4 events" in past.page("/history")
    assert "0 events" in past.page("/history?group=none")
    for path in ("/history?grp=x", "/?tag=x", "/audit?before=3", "/api/v1/events?gruop=x"):
        assert past.http.get(past.url + path, timeout=20).status_code == 400


def test_an_invalid_time_is_refused(past: ConsoleStage, page: Page) -> None:
    """API and page refuse an invalid time with a sentence."""
    answer = past.http.get(f"{past.url}/api/v1/events?since=yesterday", timeout=20)
    assert answer.status_code == 422
    assert "it is not a time such as" in answer.json()["error"]
    page.goto(f"{past.url}/history?since=yesterday")
    expect(page.get_by_role("alert").first).to_contain_text("it is not a time such as")


def test_the_history_is_filtered_sorted_and_exported(past: ConsoleStage, page: Page) -> None:
    """Filters and order are in the URL, and the exports have the events of the page."""
    page.goto(f"{past.url}/history")
    names = page.locator("tbody td:nth-child(3)")
    expect(names).to_have_text(["web-17", "db-3", "web-17", "db-3"])
    page.get_by_role("link", name="Away").click()
    expect(names.first).to_have_text("db-3")
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Away")
    page.get_by_role("link", name="First seen").click()
    page.get_by_role("link", name="First seen").click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("First seen")
    expect(names).to_have_text(["db-3", "web-17", "db-3", "web-17"])
    for column, first in (("VMs", "db-3"), ("Approved", "db-3")):
        page.get_by_role("link", name=column, exact=True).click()
        page.get_by_role("link", name=column, exact=True).click()
        expect(page.locator("th[aria-sort=ascending]")).to_have_text(column)
        expect(names.first).to_have_text(first)
    page.get_by_label("From (UTC)").fill("2026-03-02T01:00")
    page.get_by_label("To (UTC)").fill("2026-03-02T02:00")
    expect(names).to_have_text(["db-3"])
    row = page.locator("tbody tr")
    expect(row).to_contain_text("42 s")
    expect(row).to_contain_text("15 min of 15 min promised")
    expect(row).to_contain_text("mia@example.com")
    assert "since=2026-03-02T01%3A00" in page.url
    for kind in ("CSV", "JSON"):
        address = page.get_by_role("link", name=kind, exact=True).get_attribute("href")
        text = past.http.get(past.url + str(address), timeout=20).text
        assert ("E-NIGHT" in text, "E-SPOT" in text) == (True, False)


def test_last_night_is_one_click_of_whoever_asks(past: ConsoleStage, page: Page) -> None:
    """`last night` is from 20:00 of the reader's clock until now or 08:00; without JavaScript it is
    in UTC.
    """
    link = page.get_by_role("link", name="last night")
    page.clock.set_fixed_time(past.now)
    page.goto(f"{past.url}/history?site=dublin&page=2")
    link.click()
    expect(page).to_have_url(f"{past.url}/history?site=dublin&since=2026-03-01T19%3A00")
    names = page.locator("tbody td:nth-child(3)")
    expect(names).to_have_text(["db-3"])
    past.now += timedelta(hours=9)
    page.clock.set_fixed_time(past.now)
    page.goto(f"{past.url}/history")
    expect(link).to_have_attribute("title", "20:00 to 08:00, local time")
    link.click()
    night = "since=2026-03-01T19%3A00&until=2026-03-02T07%3A00"
    expect(page).to_have_url(f"{past.url}/history?{night}")
    expect(names).to_have_text(["web-17", "db-3", "web-17"])
    assert "since=2026-03-01T20%3A00&amp;until=2026-03-02T08%3A00" in past.page("/history")


def test_the_fields_for_times_follow_the_clock_that_was_chosen(
    past: ConsoleStage, page: Page
) -> None:
    """With local time chosen, the fields have local times, and the address has UTC."""
    page.goto(f"{past.url}/history?since=2026-03-02T01:00")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.get_by_role("button", name="show local time").click()
    expect(page.get_by_label("From (local time)")).to_have_value("2026-03-02T02:00")
    page.get_by_label("To (local time)").fill("2026-03-02T02:30")
    expect(page).to_have_url(re.compile("since=2026-03-02T01%3A00&until=2026-03-02T01%3A30$"))
    expect(page.locator("tbody td:nth-child(3)")).to_have_text(["db-3"])
    page.reload()
    expect(page.get_by_label("To (local time)")).to_have_value("2026-03-02T02:30")
    page.get_by_role("button", name="show UTC").click()
    expect(page.get_by_label("From (UTC)")).to_have_value("2026-03-02T01:00")
    expect(page.get_by_label("To (UTC)")).to_have_value("2026-03-02T01:30")
    check_views(page, "console-history-times", every=True)


def test_rows_that_are_not_what_was_asked_for_look_so(past: ConsoleStage, page: Page) -> None:
    """The address changes at once, and old rows are marked until the console has answered."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.goto(f"{past.url}/history")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.route("**/history?*", hold)
    page.get_by_label("Type").select_option("Preempt")
    expect(page.locator("#past")).to_have_attribute("aria-busy", "true")
    for each in held:
        each.continue_()
    page.unroute("**/history?*", hold)
    expect(page.locator("tbody td:nth-child(3)")).to_have_text(["web-17"])
    expect(page.locator("#past")).not_to_have_attribute("aria-busy", "true")


def test_enter_goes_to_no_row_that_was_not_searched_for(past: ConsoleStage, page: Page) -> None:
    """If the console does not answer a search, Enter does not open a row of the earlier one."""
    page.goto(f"{past.url}/history")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.route("**/history?*", lambda route: route.fulfill(status=503))
    search = page.locator("#filters input[name=q]")
    search.fill("db-3")
    with page.expect_response("**/history?q=db-3"):
        search.press("Enter")
    expect(page.locator("#live")).to_have_text("connecting")
    expect(search).to_be_focused()
    page.unroute_all()
    search.press("Enter")
    expect(page.locator("#past a").first).to_be_focused()
    expect(page.locator("tbody td:nth-child(3)")).to_have_text(["db-3", "db-3"])


def test_names_come_before_ids(stage: ConsoleStage, page: Page) -> None:
    """A search lists events of matching names before matching ids, however old they are."""
    happened(stage, "E-1", FakeVm(name="db-3"), hours_ago=9)
    happened(stage, "4DB-2", FakeVm(name="web-1"), hours_ago=1)
    page.goto(f"{stage.url}/history?q=db-")
    expect(page.locator("tbody td:nth-child(3)")).to_have_text(["db-3", "web-1"])


def test_an_event_is_a_report_to_paste(past: ConsoleStage, page: Page) -> None:
    """The report has the event, its VMs, the measured and announced times, and who approved it."""
    page.goto(f"{past.url}/events/E-NIGHT")
    expect(page.locator("h1")).to_have_text("Reboot of db-3")
    assert page.title() == "Reboot of db-3 · Scheduled events"
    page.get_by_text("As text, to paste").click()
    text = page.locator("#report").inner_text()
    for line in (
        "Reboot of db-3 (event E-NIGHT)",
        "Status: Completed, as of 2026-03-02 02:14:28 UTC",
        "First seen: 2026-03-02 01:14:28 UTC (notice 15 min, 15 min promised)",
        "Started: 2026-03-02 01:15:28 UTC",
        "Away: 42 s",
        "Decision: Approved, by mia@example.com, at 2026-03-02 01:14:28 UTC",
        "  2026-03-02 01:14:28 UTC  Announced, reported by db-3",
    ):
        assert line in text.splitlines()


def test_a_vm_has_a_strip_of_its_past(past: ConsoleStage, page: Page) -> None:
    """A VM's page has a mark for each event of the last days, and a link to the history."""
    page.goto(f"{past.url}/fleet?q=db-3")
    page.locator("tbody th a").click()
    marks = page.locator(".strip a")
    expect(marks).to_have_count(2)
    expect(marks.first).to_have_attribute("href", "/events/E-OLD")
    check_views(page, "console-strip", every=True)
    page.get_by_role("link", name="All that is kept of its past").click()
    expect(page.locator("tbody td:nth-child(3)")).to_have_text(["db-3", "db-3"])


def test_a_silent_vm_says_what_its_silence_means(stage: ConsoleStage, page: Page) -> None:
    """A silent VM's page says since which event, when it is expected back, its last report, and
    what to check.
    """
    away, lost = FakeVm(name="away"), FakeVm(name="lost")
    begin = stage.now - timedelta(minutes=16)
    stage.put(away.event("E", transition="started", now=begin))
    stage.put(lost.heartbeat(now=begin))
    page.goto(f"{stage.url}/vms/{away.vm_id}")
    note = page.locator("#silence")
    expect(note).to_contain_text("Silent since its Reboot started, 01:58:28 UTC")
    expect(note).to_contain_text("Its last word: Started, 01:58:28 UTC.")
    expect(note).to_contain_text("journalctl -u seb")
    portal = "https://portal.azure.com/#resource/subscriptions/sub-1/resourceGroups/group-1"
    link = note.get_by_role("link", name="in Azure's portal").get_attribute("href")
    assert str(link).startswith(portal)
    check_views(page, "console-silence", every=True)
    page.goto(f"{stage.url}/vms/{lost.vm_id}")
    expect(note).to_contain_text("No event explains its silence.")
    stage.state.sources["web"].note_disconnected("connection refused")
    page.reload()
    expect(page.locator("#troubles")).to_contain_text("is not connected: 2 VMs depend on it")


def test_a_silent_vm_that_is_gone_is_retired_on_its_page(stage: ConsoleStage, page: Page) -> None:
    """A button with a reason retires a silent VM, and no page counts it as silent any more."""
    gone = FakeVm(name="gone")
    stage.put(gone.heartbeat(now=stage.now - timedelta(hours=1)))
    page.goto(stage.url)
    page.locator("#silent a", has_text="gone").click()
    page.get_by_label("Reason").fill("deleted in May")
    page.get_by_role("button", name="Retire this VM").click()
    expect(page.locator(".states")).to_contain_text("retired")
    expect(page.locator("#silence")).to_have_count(0)
    page.goto(stage.url)
    expect(page.locator("#silent-title")).to_contain_text("none")


def test_a_past_event_on_a_phone_says_what_its_numbers_are(past: ConsoleStage, page: Page) -> None:
    """On a phone each number has its label, because the columns have no heads."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{past.url}/history")
    assert not any(cell.is_visible() for cell in page.locator("#past .dash").all())
    page.goto(f"{past.url}/history?vm=db-3&until=2026-03-02T03:00&since=2026-03-02T00:00")
    label = "cell => getComputedStyle(cell, '::before').content"
    cells = page.locator("#past tr").first.locator("td[data-label]")
    assert [cell.evaluate(label) for cell in cells.all()] == ['"Notice "', '"Away "']
    check_views(page, "console-history-phone", every=True)
    page.goto(f"{past.url}/history?q=db-3&page=99")
    expect(page.locator("#past tr")).to_have_count(2)
