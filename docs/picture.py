"""Takes the README's picture of the console: `python docs/picture.py` runs the demo."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

PICTURE = Path(__file__).with_name("console.png")
SIZE = {"width": 1120, "height": 800}
PATIENCE_MS = 120_000
"""The VM whose bridge crashes is silent after about a minute."""


def main() -> int:
    """Run the demo until it shows an event under way and a silent VM, and take the picture."""
    browsers = ("chromium-headless-shell", "chromium", "google-chrome")
    browser_path = next(filter(None, map(shutil.which, browsers)), None)
    if browser_path is None:
        sys.stderr.write("install chromium first: make tools\n")
        return 1
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SEB_")}
    command = [sys.executable, "-m", "bridge", "console", "demo"]
    demo = subprocess.Popen(command, env=clean, stdout=subprocess.PIPE, text=True)  # noqa: S603  # ours
    try:
        assert demo.stdout is not None  # noqa: S101  # it was asked for
        address = demo.stdout.readline().strip()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport=SIZE, color_scheme="light", locale="en-GB")
            page.goto(address)
            silent = page.locator(".plain", has_text="cache-1")
            expect(silent).to_be_visible(timeout=PATIENCE_MS)
            expect(page.locator(".event", has_text="Freeze")).to_be_visible(timeout=PATIENCE_MS)
            page.screenshot(path=PICTURE)
            browser.close()
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(60)
    sys.stdout.write(f"{PICTURE.name}: {PICTURE.stat().st_size // 1024} KiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
