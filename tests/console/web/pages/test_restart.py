"""A page that is open over a restart of its console, and over the end of a login."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, expect
from support.console.decision_bench import made_key
from support.console.mqtt import MqttFleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto
from support.oidc.hostile_provider import BegunLogin, HostileProvider
from support.page.browser import check_views, new_context, watched_page


def test_after_a_restart_what_was_due_is_due_and_what_was_typed_is_there(
    browser: Browser, tmp_path: Path
) -> None:
    """After a restart, the first answer shows what is due before any VM has sent anything, and an
    open form keeps its text.
    """
    key, _ = made_key(tmp_path / "keys")
    with Mosquitto(tmp_path / "broker") as broker, MqttFleet(broker) as fleet:
        console = ConsoleProcess(
            tmp_path / "console",
            KEY=str(key),
            SOURCE__BROKER__KIND="mqtt",
            SOURCE__BROKER__HOST=broker.host,
            SOURCE__BROKER__PORT=str(broker.port),
        )
        with console, watched_page(browser, console.url) as page:
            for number in range(3):
                vm = FakeVm(name=f"db-{number}")
                fleet.retain(vm, "status", vm.status("online", commands=True))
                fleet.say(vm, vm.event(f"E-{number}"))
            eventually(lambda: console.get("overview")["decisionsDue"] == 3, what="three due")
            page.goto(f"{console.url}/events/E-1")
            page.get_by_label("Reason").fill("window of tonight")
            for end in (console.kill, console.stop):
                end()
                console.start()
                overview = console.get("overview")
                assert overview["decisionsDue"] == 3
                assert overview["vms"]["heard"] == 3
                page.evaluate("dispatchEvent(new Event('online'))")
                expect(page.locator("#live")).to_have_attribute("data-state", "live")
                expect(page.get_by_label("Reason")).to_have_value("window of tonight")
                expect(page.locator("#decision-title")).to_contain_text("Decision due")


def log_in(console: ConsoleProcess, provider: HostileProvider, context: BrowserContext) -> None:
    """Log Ann in, in the test's own client and in the browser, as in another of her tabs."""
    attempt = BegunLogin(console.url, http=console.http)
    provider.id_token = provider.sign(provider.claims(attempt.nonce))
    assert attempt.come_back().status_code == 303
    value = console.http.cookies["seb-session"]
    context.add_cookies([{"name": "seb-session", "value": value, "url": console.url}])


def pass_a_minute(page: Page) -> None:
    """Let a minute pass on the page's clock; its requests are answered in real time."""
    for _ in range(12):
        page.clock.run_for(5000)


def test_a_page_is_open_for_six_hours_over_a_restart_and_the_end_of_a_login(
    browser: Browser, tmp_path: Path
) -> None:
    """A page that is open for hours, over a restart and the end of the login, says what is wrong,
    also in its title, keeps what was typed, offers the login, and continues by itself; its times
    stay right.
    """
    key, _ = made_key(tmp_path / "keys")
    vm = FakeVm(name="db-1")
    with (
        HostileProvider() as provider,
        Mosquitto(tmp_path / "broker") as broker,
        MqttFleet(broker) as fleet,
        new_context(browser) as context,
        ConsoleProcess(
            tmp_path / "console",
            KEY=str(key),
            SOURCE__BROKER__KIND="mqtt",
            SOURCE__BROKER__HOST=broker.host,
            SOURCE__BROKER__PORT=str(broker.port),
            LOGIN__MODE="oidc",
            LOGIN__CLIENT_ID="console",
            LOGIN__ISSUER=provider.issuer,
            ROLES='{"approver": ["group:ops"]}',
        ) as console,
    ):
        log_in(console, provider, context)
        fleet.retain(vm, "status", vm.status("online", commands=True))
        fleet.say(vm, vm.event("E"))
        eventually(lambda: console.get("overview")["decisionsDue"] == 1, what="one due")
        page = context.new_page()
        page.clock.install()
        page.goto(f"{console.url}/events/E")
        live, reason = page.locator("#live"), page.get_by_label("Reason")
        expect(live).to_have_attribute("data-state", "live")
        reason.fill("window of tonight")
        console.kill()
        expect(live).not_to_have_attribute("data-state", "live")
        page.clock.fast_forward("06:00:00")
        expect(page.locator("#stale")).to_contain_text("No contact with the console since ")
        expect(page).to_have_title("No contact \u00b7 Reboot of db-1 \u00b7 Scheduled events")

        console.start()
        console.http.post(f"{console.url}/logout", timeout=20)
        pass_a_minute(page)
        expect(live).to_have_text("login ended")
        expect(page).to_have_title("Login ended \u00b7 Reboot of db-1 \u00b7 Scheduled events")
        expect(page.locator("#stale")).to_contain_text("Your login has ended")
        link = page.get_by_role("link", name="Log in in another tab")
        expect(link).to_have_attribute("href", "/login")
        page.get_by_role("button", name="Leave it").click()
        expect(page.locator("[data-unsent]")).to_contain_text("your login has ended")
        expect(reason).to_have_value("window of tonight")
        refused = context.request.post(
            f"{console.url}/events/E/decide", headers={"Accept": "text/html"}
        )
        assert (refused.status, 'href="/login"' in refused.text()) == (401, True)

        log_in(console, provider, context)
        pass_a_minute(page)
        expect(live).to_have_attribute("data-state", "live")
        expect(page).to_have_title("Reboot of db-1 \u00b7 Scheduled events")
        expect(page.locator("#stale")).to_be_hidden()
        expect(page.locator("#decision-title")).to_contain_text("Decision due")
        expect(reason).to_have_value("window of tonight")
        first_seen = page.locator(".timeline li").last
        expect(first_seen).to_contain_text("ago")
        expect(first_seen).not_to_contain_text(" h ")
        page.get_by_role("button", name="Leave it").click()
        expect(page.locator("#decision")).to_contain_text("Left until its time")


def test_the_page_of_who_is_not_logged_in_is_readable_for_everybody(
    browser: Browser, tmp_path: Path
) -> None:
    """The page for a person without a login says so, has a button that leads to the login, and
    passes the check of accessibility.
    """
    with (
        HostileProvider() as provider,
        ConsoleProcess(
            tmp_path,
            LOGIN__MODE="oidc",
            LOGIN__CLIENT_ID="console",
            LOGIN__ISSUER=provider.issuer,
            ROLES="{}",
        ) as console,
        watched_page(browser, console.url) as page,
    ):
        page.goto(f"{console.url}/logged-out")
        expect(page.get_by_role("link", name="Log in")).to_be_visible()
        check_views(page, "console-login", every=True)
