"""Other sites in the same browser: nothing that they send or show decides anything."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from support.console.decision_bench import made_key
from support.console.records import FakeVm
from support.console.stage import ConsoleStage

_QUIET = {"log_message": lambda *_: None}
Handler = type("Handler", (SimpleHTTPRequestHandler,), _QUIET)


class Elsewhere:
    """Another web server: `localhost` is another site, and this address a neighbouring host."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        handler = partial(Handler, directory=str(directory))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def serves(self, host: str, markup: str) -> str:
        """Serve a page with this markup; return its address."""
        (self.directory / "page.html").write_text(f"<!doctype html><title>x</title>{markup}")
        return f"http://{host}:{self.server.server_port}/page.html"

    def close(self) -> None:
        """Stop the server."""
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    """The other site."""
    made = Elsewhere(tmp_path / "elsewhere")
    yield made
    made.close()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[ConsoleStage]:
    """A console without a login, where everybody on this machine has every role."""
    key, _ = made_key(tmp_path / "keys")
    with ConsoleStage(tmp_path, KEY=str(key)) as made:
        vm = FakeVm()
        made.put(vm.event("E", now=made.now, not_before=made.moment(872)))
        made.takes_commands(vm)
        yield made


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A tab of the same browser."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


SITES = pytest.mark.parametrize("host", ["localhost", "127.0.0.1"], ids=["cross", "same-site"])


def assert_untouched(target: ConsoleStage) -> None:
    """Check that the event still waits for a decision, and that the audit has no other row."""
    item = target.http.get(f"{target.url}/api/v1/events/E", timeout=10).json()
    assert item["decision"]["state"] == "due"
    assert {row["action"] for row in audit_of(target)} <= {"refused"}


def audit_of(target: ConsoleStage) -> list[dict[str, str]]:
    """Return the rows of the audit."""
    text = target.http.get(f"{target.url}/api/v1/audit", timeout=10).text
    return [json.loads(line) for line in text.splitlines()]


def hidden_fields(target: ConsoleStage) -> str:
    """Return the hidden fields of a form of the console."""
    return json.dumps(target.http.get(f"{target.url}/api/v1/events/E", timeout=10).json())


@SITES
@pytest.mark.parametrize("place", ["/events/E", "/decide/confirm"])
def test_a_form_elsewhere(
    target: ConsoleStage, elsewhere: Elsewhere, tab: Page, host: str, place: str
) -> None:
    """A form of another site that sends itself is answered 403."""
    fields = {"action": "approve", "reason": "x", "seen": hidden_fields(target)}
    inputs = "".join(f'<input name="{k}" value="{escape(v)}">' for k, v in fields.items())
    form = f'<form method="post" action="{target.url}{place}">{inputs}<button>Win</button></form>'
    tab.goto(elsewhere.serves(host, form))
    with tab.expect_response(f"{target.url}{place}") as answer:
        tab.get_by_role("button").click()
    assert answer.value.status == 403
    assert_untouched(target)


@SITES
@pytest.mark.parametrize("what", ["approve", "leave"])
def test_json_in_a_form_elsewhere(
    target: ConsoleStage, elsewhere: Elsewhere, tab: Page, host: str, what: str
) -> None:
    """A form of another site that sends JSON as plain text is answered 403."""
    fingerprint = json.loads(hidden_fields(target))["fingerprint"]
    name = escape(f'{{"fingerprint": "{fingerprint}", "reason": "')
    address = f"{target.url}/api/v1/events/E/{what}"
    form = (
        f'<form method="post" enctype="text/plain" action="{address}">'
        f'<input name="{name}" value=\'x"}}\'><button>Win</button></form>'
    )
    tab.goto(elsewhere.serves(host, form))
    with tab.expect_response(address) as answer:
        tab.get_by_role("button").click()
    assert answer.value.status == 403
    assert_untouched(target)


@SITES
def test_a_script_elsewhere(
    target: ConsoleStage, elsewhere: Elsewhere, tab: Page, host: str
) -> None:
    """A fetch of another site does not reach the console, with or without a preflight request."""
    fingerprint = json.loads(hidden_fields(target))["fingerprint"]
    body = json.dumps({"fingerprint": fingerprint, "reason": "x"})
    tab.goto(elsewhere.serves(host, ""))
    for mode, kind in (("no-cors", "text/plain"), ("cors", "application/json")):
        tab.evaluate(
            """([address, mode, kind, body]) => fetch(address, {
              method: "POST", mode, body, credentials: "include", headers: {"Content-Type": kind},
            }).then(() => null, () => null)""",
            [f"{target.url}/api/v1/events/E/approve", mode, kind, body],
        )
    read = tab.evaluate(
        'address => fetch(address, {credentials: "include"}).then((a) => a.text(), () => "no")',
        f"{target.url}/api/v1/events",
    )
    assert read == "no"
    assert_untouched(target)


@SITES
def test_a_frame_elsewhere(
    target: ConsoleStage, elsewhere: Elsewhere, tab: Page, host: str
) -> None:
    """No page of the console is drawn in a frame of another site."""
    tab.goto(elsewhere.serves(host, f'<iframe src="{target.url}/events/E"></iframe>'))
    frame = tab.frames[1]
    assert frame.get_by_role("button").count() == 0
    assert "Scheduled events" not in frame.content()
    assert_untouched(target)
