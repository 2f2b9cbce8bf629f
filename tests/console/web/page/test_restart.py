"""A page that is open over a restart of its console: it says what it said before."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect
from support.console.deciding import made_key
from support.console.mqtt import Fleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto
from support.page.browser import watched_page


def test_after_a_restart_what_was_due_is_due_and_what_was_typed_is_there(
    browser: Browser, tmp_path: Path
) -> None:
    """At the first answer, before any VM has spoken again; an open form keeps its text."""
    key, _ = made_key(tmp_path / "keys")
    with Mosquitto(tmp_path / "broker") as broker, Fleet(broker) as fleet:
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
