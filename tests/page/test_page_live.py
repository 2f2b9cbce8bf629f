"""The page in front of a real bridge, which looks at a simulated IMDS and feeds a real broker."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from support.mqtt.mosquitto import Mosquitto
from support.page.browser import screenshot, watched_page
from support.process.bridge import BridgeProcess

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import RefusedFault
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm

HEADLINE = "#state h2"
VM = SimulatedVm(name="web_3", scale_set="web")
# A page asks every two seconds, and a bridge says after ten seconds that it does not look.
SOON_MS = 30_000


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """An IMDS with no event yet."""
    with Simulator(vm=VM) as made:
        yield made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A real broker."""
    with Mosquitto(tmp_path / "broker") as made:
        yield made


@pytest.fixture
def bridge(simulator: Simulator, broker: Mosquitto, tmp_path: Path) -> Iterator[BridgeProcess]:
    """A bridge that serves the page on a free port."""
    env = {
        "SEB_IMDS__URL": simulator.url,
        "SEB_STATE_DIR": str(tmp_path / "state"),
        "SEB_POLL_INTERVAL": "0.2",
        "SEB_HTTP__LISTEN": "127.0.0.1:0",
        "SEB_SINK__MQTT__HOST": broker.host,
        "SEB_SINK__MQTT__PORT": str(broker.port),
        "SEB_SINK__STDOUT__FORMAT": "json",
    }
    with BridgeProcess("run", env=env, home=tmp_path) as made:
        yield made


@pytest.fixture
def url(bridge: BridgeProcess) -> str:
    """Where the bridge serves the page."""
    return f"http://{bridge.wait_for_log('http_listening')['address']}/"


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The bridge's page, with all clear."""
    with watched_page(browser, url) as made:
        made.goto(url)
        expect(made.locator(HEADLINE)).to_have_text("All clear", timeout=SOON_MS)
        yield made


def health(url: str) -> tuple[int, int]:
    """What /healthz and /readyz answer."""
    codes = []
    for name in ("healthz", "readyz"):
        try:
            with urllib.request.urlopen(f"{url}{name}") as answer:
                codes.append(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                codes.append(error.code)
    return codes[0], codes[1]


def test_an_event_from_the_news_to_its_end(page: Page, simulator: Simulator) -> None:
    """What is coming, what is under way and what became of it, without a reload."""
    expect(page.locator("h1")).to_have_text("web_3")
    expect(page.locator("#timeline h2 small")).to_have_text("live")
    expect(page.locator(".sink .pill")).to_have_text(["OK", "OK"], timeout=SOON_MS)
    due = datetime.now(UTC) + timedelta(minutes=15)
    coming = SimulatedEvent(
        event_type="Reboot", not_before=due, duration=30, resources=("web_3", "web_4")
    )
    simulator.announce(coming)
    expect(page.locator(HEADLINE)).to_have_text("Event coming", timeout=SOON_MS)
    expect(page.locator("#state .what")).to_have_text("Reboot: restart")
    expect(page.locator(".names li")).to_have_text(["web_3 (this VM)", "web_4"])
    before = page.locator("#state .count time").inner_text()
    expect(page.locator("#state .count time")).not_to_have_text(before, timeout=SOON_MS)
    screenshot(page, "live-coming")
    simulator.start_event(coming.event_id)
    expect(page.locator(HEADLINE)).to_have_text("Event under way", timeout=SOON_MS)
    simulator.end_event(coming.event_id)
    expect(page.locator(HEADLINE)).to_have_text("All clear", timeout=SOON_MS)
    expect(page.locator("#state .say")).to_contain_text("Last: Reboot ended")
    told = ["Reboot completed", "Reboot started", "Reboot announced", "Bridge started"]
    expect(page.locator("#timeline h3")).to_have_text(told)


def test_a_broker_that_dies_turns_its_sink_alone(page: Page, broker: Mosquitto, url: str) -> None:
    """Neither the big state nor health nor readiness has anything to do with it."""
    expect(page.locator(".sink .pill").first).to_have_text("OK", timeout=SOON_MS)
    broker.kill()
    row = page.locator(".sink").filter(has_text="mqtt")
    expect(row.locator(".pill")).to_have_text("Failing", timeout=SOON_MS)
    expect(page.locator("#notices")).to_contain_text("1 of 2 sinks does not take records: mqtt")
    expect(page.locator(HEADLINE)).to_have_text("All clear")
    assert health(url) == (200, 200)
    screenshot(page, "live-broker-killed")
    broker.start()
    expect(row.locator(".pill")).to_have_text("OK", timeout=SOON_MS)
    expect(page.locator("#notices li")).to_have_count(0)


def test_an_imds_that_stops_turns_the_big_state(
    page: Page, simulator: Simulator, bridge: BridgeProcess, url: str
) -> None:
    """'Not looking' is not 'no contact': that is what the page says once the bridge is gone."""
    simulator.fault(RefusedFault(seconds=None))
    expect(page.locator(HEADLINE)).to_have_text("Not looking", timeout=SOON_MS)
    expect(page.locator("#state .say")).to_contain_text("The metadata service (IMDS) last answered")
    assert health(url) == (200, 503)
    screenshot(page, "live-not-looking")
    simulator.heal()
    expect(page.locator(HEADLINE)).to_have_text("All clear", timeout=SOON_MS)
    bridge.kill()
    expect(page.locator(HEADLINE)).to_have_text("No contact with the bridge", timeout=SOON_MS)
    expect(page.locator("#state .say")).to_contain_text("it cannot be reached")
    expect(page.locator("#state .known")).to_have_text("Last known: nothing pending")
    screenshot(page, "live-no-contact")
