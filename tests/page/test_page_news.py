"""How news comes to the page, by the stream or without it, and whom it tells."""

from playwright.sync_api import Page, expect
from support.page.status_fixture import StatusServer
from support.page.status_samples import blind, event, record, sink, status
from support.page.still import look_again, opened

HEADLINE = "#state h2"


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
    expect(page.locator("#timeline li h3")).to_have_text(["The store was lost and is new"])


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
