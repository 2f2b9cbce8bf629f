"""`seb console demo` as a person meets it: no broker, no Azure, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from support.eventually import eventually
from support.page.browser import check_views, started_browser, watched_page
from support.ports import free_port

COMMAND = [sys.executable, "-m", "bridge", "console", "demo"]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory for the demo's files; its path is short, as that of a socket has to be."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@contextmanager
def _demo(directory: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running demo, in a process group of its own, and its address."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SEB_")}
    # What a user has set, wrong as it is here, is of no concern to the demo.
    environ |= {
        "TMPDIR": str(directory),
        "SEB_CONSOLE_LISTEN": "0.0.0.0:1",
        "SEB_POLL_INTERVAL": "x",
    }
    with subprocess.Popen(
        [*COMMAND, *words],
        env=environ,
        cwd=Path.cwd(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_a_fleet_with_an_event_and_then_nothing_at_all(scratch: Path) -> None:
    """A browser shows an open event that three VMs share, which can be approved; a VM's rule
    approves one beside it. Ctrl-C leaves no trace.
    """
    address = f"http://127.0.0.1:{free_port()}/"
    with (
        started_browser() as browser,
        _demo(scratch, "--listen", address[7:-1]) as (process, told),
    ):
        assert told == address
        with watched_page(browser, address) as page:
            page.goto(address)
            page.set_default_timeout(30_000)
            expect(page.get_by_text("3 VMs affected, seen by 3").first).to_be_visible(
                timeout=90_000
            )
            expect(page.locator(".answer-names")).to_contain_text("web_0")
            check_views(page, "console-demo", every=True)
            page.locator(".answer-names, .answer").get_by_role("link").first.click()
            page.get_by_label("Reason").fill("a look at the demo")
            page.get_by_role("button", name="Approve now").click()
            expect(page.locator("#decision")).to_contain_text("Approved", timeout=60_000)
            page.goto(f"{address}audit")
            expect(page.locator("main")).to_contain_text("a look at the demo")
            rule = "rule:user-reboots"
            eventually(lambda: rule in approved_by(page, address), what="the rule", timeout=60)
            page.goto(f"{address}groups")
            expect(page.locator("main")).to_contain_text("1 of etcd away", timeout=90_000)
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    assert list(scratch.iterdir()) == []


def approved_by(page: Page, address: str) -> list[str | None]:
    """Return who approved the open events."""
    items = page.request.get(f"{address}api/v1/events").json()["items"]
    decisions = [item["decision"] for item in items]
    return [each["by"] for each in decisions if each["state"] in ("approving", "approved")]


def test_a_demo_that_is_interrupted_at_once_ends_too(scratch: Path) -> None:
    """A demo that is interrupted while its VMs start ends too."""
    with _demo(scratch, "--listen", f"127.0.0.1:{free_port()}") as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("listen", ["0.0.0.0:9470", "127.0.0.1:0", "nonsense"])
def test_the_demo_stays_on_this_machine(listen: str) -> None:
    """An address that is not loopback is a usage error, because the demo has no login."""
    done = subprocess.run(
        [*COMMAND, "--listen", listen], check=False, capture_output=True, timeout=60
    )
    assert done.returncode == 2
