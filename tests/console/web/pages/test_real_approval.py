"""Approving on the page in a real browser, with a real bridge and an IMDS that counts POSTs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect
from support.console.decision_bench import DecisionBench, audit
from support.console.https_bench import HttpsBench
from support.console.process import ConsoleProcess
from support.page.browser import watched_page


def test_an_approval_on_the_page_starts_the_event_once(tmp_path: Path, browser: Browser) -> None:
    """An approval over a broker starts the event once; its steps appear by themselves, and the
    audit has the name.
    """
    with DecisionBench(tmp_path) as bench, bench.console() as console:
        event = bench.due(console, bench.announce("Freeze"))
        approved_on_the_page(browser, console, event)
        assert bench.effective == [event["eventId"]]


def test_an_approval_on_the_page_over_https_alone(tmp_path: Path, browser: Browser) -> None:
    """An approval of a VM without a broker, which polls for commands, does the same."""
    with HttpsBench(tmp_path) as bench, bench.console() as console, bench.bridge(console):
        event = bench.announced(console)
        approved_on_the_page(browser, console, event)
        assert bench.effective == [event["eventId"]]


def approved_on_the_page(browser: Browser, console: ConsoleProcess, event: dict[str, Any]) -> None:
    """Give a reason and approve; the result appears by itself."""
    with watched_page(browser, console.url) as page:
        page.goto(f"{console.url}/events/{event['eventId']}")
        page.get_by_label("Reason").fill("window of tonight")
        page.get_by_role("button", name="Approve now").click()
        expect(page.locator("#decision h2")).to_contain_text("Approved")
        steps = page.locator(".steps .step-done")
        words = ("sent", "accepted by the VM", "given to Azure", "confirmed")
        expect(steps).to_have_count(len(words))
        for number, word in enumerate(words):
            expect(steps.nth(number)).to_contain_text(word)
        page.goto(f"{console.url}/audit")
        expect(page.locator(".chain")).to_contain_text("Complete and unchanged up to row")
    (row,) = [row for row in audit(console) if row["action"] == "approve"]
    assert (row["actor"].startswith("local:"), row["reason"]) == (True, "window of tonight")
