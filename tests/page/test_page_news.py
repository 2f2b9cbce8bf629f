"""How news comes to the page, by the stream or without it, and whom it tells."""

from playwright.sync_api import Page, expect
from support.page.status_fixture import StatusServer
from support.page.status_samples import blind, event, record, sink, status
from support.page.still_page import look_again, opened

HEADLINE = "#state h2"


def test_a_live_record_appears_by_itself(page: Page, server: StatusServer) -> None:
    """A record appears on the open page over the stream, and the page then requests the status."""
    server.status = status()
    opened(page, server)
    server.status = status(events=[event()])
    server.push(record("event.scheduled", 7))
    expect(page.locator("#timeline li h3")).to_have_text(["Freeze announced"])
    expect(page.locator(HEADLINE)).to_have_text("Event coming")


def test_without_a_stream_the_records_are_requested(page: Page, server: StatusServer) -> None:
    """If the bridge has no room for another stream, each request of the page brings the new
    records.
    """
    server.status, server.streaming = status(), False
    server.records = [record("event.scheduled", 6)]
    opened(page, server)
    server.push(record("event.started", 7))
    look_again(page)
    expect(page.locator("#timeline li h3")).to_have_text(["Freeze started", "Freeze announced"])
    assert "/api/v1/events?after=6" in server.asked


def test_a_stream_that_breaks_loses_nothing(page: Page, server: StatusServer) -> None:
    """Records that are committed while the stream is broken appear once each."""
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
    """After the bridge has begun with a new store, the page shows nothing of the old one."""
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
    """A screen reader gets changes of the main state, and neither a failing sink nor the
    countdown.
    """
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
