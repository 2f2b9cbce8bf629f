"""`/audit`: who did what, when and why, with the newest first; and the check of the chain."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, Page, expect
from sqlalchemy import insert, text
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.page.browser import check_views

from console.audit import audit_log
from console.db.connection.transactions import next_change_number
from console.db.schema.decision_tables import decision as decisions

BAD = "<script>window.hit=1</script>\u202e\x07"
SEEN = "<script>window.hit=1</script>\\u202e\\u0007"


def audited(stage: ConsoleStage, **row: Any) -> None:
    """Append a row, as a decision does."""
    with stage.console.database.writing.begin() as connection:
        next_change_number(connection)
        fields = {"actor": "mia", "action": "approve", "event_id": "E", "reason": "patching", **row}
        audit_log.append(connection, at=stage.now.timestamp(), **fields)


def test_the_newest_row_is_first(stage: ConsoleStage, page: Page) -> None:
    """Each row has the person, the action with its event, and the reason; the page says whether the
    chain is unchanged.
    """
    audited(stage, outcome="confirmed")
    audited(stage, actor="ann", action="leave", event_id="E/2")
    page.goto(f"{stage.url}/audit")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("ann")
    expect(rows.nth(1)).to_contain_text("patching")
    expect(rows.nth(1)).to_contain_text("outcome: confirmed")
    expect(page.locator(".chain")).to_contain_text("Complete and unchanged up to row 2")
    check_views(page, "console-audit-rows", every=True)
    rows.nth(0).get_by_role("link", name="E/2").click()
    expect(page.locator("h1")).to_have_text("There is no such event")


def test_the_filters_of_the_audit_stand_in_the_url(stage: ConsoleStage, page: Page) -> None:
    """The filters by actor, event and action are in the URL; the next page is a link, and columns
    sort both ways.
    """
    for number in range(60):
        audited(stage, event_id=f"E{number}")
    audited(stage, actor="ann", action="leave")
    page.goto(f"{stage.url}/audit")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("tbody tr")).to_have_count(11)
    page.get_by_role("link", name="Who", exact=True).click()
    expect(page.locator("tbody tr").first).to_contain_text("ann")
    page.get_by_role("link", name="Who", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Who")
    expect(page.locator("tbody tr").first).to_contain_text("mia")
    page.locator("select[name=action]").select_option("leave")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert "action=leave" in page.url
    page.goto(f"{stage.url}/audit?actor=mia&event=E7")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto(f"{stage.url}/audit?actor=' OR 1=1 --")
    expect(page.locator("main")).to_contain_text("No row matches.")


def test_the_audit_is_searched_by_vm_tag_and_change(stage: ConsoleStage, page: Page) -> None:
    """A search finds rows by a VM's name, a pattern, a tag, or a change number."""
    for name in ("db-2", "web-1"):
        vm = FakeVm(name=name, tags={"role": name[:2]})
        stage.put(vm.event(f"E-{name[:2]}", now=stage.now))
        audited(stage, event_id=f"E-{name[:2]}", reason=f"CHG-{name[-1]}00 \u00e9")
    page.goto(f"{stage.url}/audit")
    search = page.get_by_label("VM (db-*)")
    count = page.locator("p.bar")
    for q, found in (
        ("DB-2", "E-db"),
        ("web-*", "E-we"),
        ("tag=role:db", "E-db"),
        ("chg-100", "E-we"),
        ("200 \u00e9", "E-db"),
    ):
        search.fill("")
        expect(count).to_have_text("2 rows")
        search.fill(q)
        expect(count).to_have_text("1 row")
        expect(page.locator("tbody tr")).to_contain_text(found)
    check_views(page, "console-audit-search", every=True)


def test_every_column_of_the_audit_sorts_both_ways(stage: ConsoleStage, page: Page) -> None:
    """Every column sorts both ways, also the reason and the outcome."""
    for number, (reason, outcome) in enumerate(
        (("m", "rejected"), ("z", None), ("a", "confirmed"))
    ):
        decision = f"{number:08}-0000-4000-8000-000000000000"
        audited(stage, event_id=f"E-{number}", reason=reason, decision=decision)
        row = {"id": decision, "event_id": f"E-{number}", "fingerprint": "f", "kind": "approve"}
        row |= {"state": "over" if outcome else "open", "actor": "mia", "reason": reason, "at": 1.0}
        with stage.console.database.writing.begin() as connection:
            connection.execute(insert(decisions), {**row, "outcome": outcome, "change_number": 1})
    page.goto(f"{stage.url}/audit")
    why = page.locator("tbody td:nth-child(4)")
    for column, up in (("Why", ["a", "m", "z"]), ("Outcome", ["a", "z", "m"])):
        for order in (up, up[::-1]):
            page.get_by_role("link", name=column, exact=True).click()
            expect(why).to_have_text(order, use_inner_text=False)
    check_views(page, "console-audit-sorted", every=True)


def test_an_audit_without_a_row_leads_to_the_history(stage: ConsoleStage, page: Page) -> None:
    """A search without rows leads to the history, which has approvals given on a VM."""
    page.goto(f"{stage.url}/audit?q=db-2")
    expect(page.locator("main")).to_contain_text("No row matches.")
    page.keyboard.press("/")
    page.keyboard.press("Enter")
    expect(page.locator("#elsewhere a")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("History")
    expect(page.get_by_label("VM (db-*)")).to_have_value("db-2")


def test_a_changed_row_is_a_red_line(stage: ConsoleStage, page: Page) -> None:
    """The page names a changed row in a red line, with a remedy."""
    audited(stage)
    audited(stage)
    with stage.console.database.writing.begin() as connection:
        for (name,) in connection.execute(
            text("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        ).all():
            connection.execute(text(f"DROP TRIGGER {name}"))
        connection.execute(text("UPDATE audit SET actor = 'eve' WHERE number = 1"))
    page.goto(f"{stage.url}/audit")
    expect(page.locator(".wrong")).to_contain_text("row 1 is changed")
    expect(page.locator(".wrong")).to_contain_text("seb console audit verify")


def test_texts_of_the_audit_stay_texts(stage: ConsoleStage, page: Page) -> None:
    """Markup in any field is shown as text."""
    audited(stage, actor=BAD, action=BAD, event_id=BAD, reason=BAD, more=BAD)
    page.goto(f"{stage.url}/audit")
    cells = page.locator("tbody tr").first.locator("td")
    for number in (0, 1, 2, 4):
        expect(cells.nth(number)).to_contain_text(SEEN)
    assert page.evaluate("window.hit") is None
    assert page.locator("main script").count() == 0


def test_the_audit_is_readable_without_javascript(stage: ConsoleStage, browser: Browser) -> None:
    """Without JavaScript the form filters the rows."""
    audited(stage)
    audited(stage, actor="ann")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{stage.url}/audit")
    page.locator("input[name=actor]").fill("ann")
    page.locator(".filters button").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    context.close()
