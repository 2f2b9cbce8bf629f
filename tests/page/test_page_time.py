"""What time does to the page: countdowns, ages, and contact that is lost."""

from playwright.sync_api import Browser, Page, expect
from support.page.browser import check_views, watched_page
from support.page.status_fixture import StatusServer
from support.page.status_samples import event, imds, moment, status
from support.page.still_page import look_again, opened, pass_time, run_clock

HEADLINE = "#state h2"
LOST = "No contact with the bridge"


def test_the_countdown_ticks_each_second(page: Page, server: StatusServer) -> None:
    """The countdown of the main state and of the list changes each second."""
    server.status = status(events=[event()])
    opened(page, server)
    figures = page.locator("#state .count time, #events summary time")
    expect(figures).to_have_text(["14:32", "14:32"])
    run_clock(page, 1_000)
    expect(figures).to_have_text(["14:31", "14:31"])
    run_clock(page, 900)
    expect(figures).to_have_text(["14:31", "14:31"])


def test_the_clock_is_the_bridges(page: Page, server: StatusServer) -> None:
    """On a device whose clock is a day off, the page shows the same countdown and ages."""
    ahead = 86_400
    server.status = status(
        now=moment(ahead),
        events=[event(notBefore=moment(ahead + 872))],
        imds=imds(lastSuccessAt=moment(ahead - 0.4)),
    )
    opened(page, server)
    expect(page.locator("#state .count time")).to_have_text("14:32")
    expect(page.locator("#state .say")).to_contain_text("IMDS answered just now.")


def test_an_event_that_is_due_says_so(page: Page, server: StatusServer) -> None:
    """An event whose time has come is shown as due, without a countdown below zero."""
    server.status = status(events=[event(notBefore=moment(1))])
    opened(page, server)
    server.status = server.status | {"now": moment(3)}
    look_again(page)
    expect(page.locator("#state .count time")).to_have_text("due now")
    expect(page.locator("#state .count")).to_contain_text("It may start at any moment, since 03:14")


def test_on_a_device_in_utc_each_time_is_shown_once(browser: Browser, server: StatusServer) -> None:
    """On a device in UTC, each time is shown once."""
    server.status = status(events=[event()])
    with watched_page(browser, server.url, time_zone="UTC") as page:
        page.goto(server.url)
        expect(page.locator("#state .count p")).to_have_text("until it may start, 02:29:00 UTC")


def test_ten_seconds_without_contact_are_shown(page: Page, server: StatusServer) -> None:
    """After ten seconds without contact, and not before, the page says so beside what it knew; new
    contact is shown at once.
    """
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
    check_views(page, "no-contact")
    server.down = False
    look_again(page)
    expect(page.locator(HEADLINE)).to_have_text("Event coming")


def test_a_bridge_that_hangs_is_not_waited_for(page: Page, server: StatusServer) -> None:
    """After five seconds without an answer the page tries again."""
    server.status = status()
    opened(page, server)
    server.stuck = True
    with page.expect_request("**/api/v1/status"):
        run_clock(page, 2_000)
    run_clock(page, 5_000)
    expect(page.locator("#contact")).to_have_text("Retrying")
    run_clock(page, 4_000)
    expect(page.locator(HEADLINE)).to_have_text(LOST)
    expect(page.locator("#state .say")).to_contain_text("no answer within 5 s")


def test_an_answer_that_makes_no_sense_is_no_contact(page: Page, server: StatusServer) -> None:
    """An invalid answer counts as no contact, so that old data is not taken for new."""
    server.status = status()
    opened(page, server)
    server.status = status(events=None, sinks=7)
    pass_time(page, 11)
    expect(page.locator(HEADLINE)).to_have_text(LOST)
    server.status = status()
    look_again(page)
    expect(page.locator(HEADLINE)).to_have_text("All clear")


def test_a_page_out_of_sight_asks_seldom(page: Page, server: StatusServer) -> None:
    """A hidden page requests data every ten seconds and holds no stream; when it is visible again,
    it requests at once.
    """
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
