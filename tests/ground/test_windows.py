"""Windows, as far as Wine is one: a real CPython for Windows runs the tests in windows/."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from support.ground.cache import ROOT
from support.ground.wine_python import WindowsPython, missing
from support.mqtt.mosquitto import Mosquitto


@pytest.fixture(scope="session")
def windows() -> WindowsPython:
    """The machine, with the bridge of this checkout in it."""
    if why := missing():
        pytest.skip(why)
    made = WindowsPython()
    made.prepare()
    return made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker outside."""
    with Mosquitto(tmp_path / "broker") as running:
        yield running


def run_tests(windows: WindowsPython, *arguments: str, timeout: float, **env: str) -> str:
    """Run pytest there, and pass the lines of promises on; all that it said, if a test failed."""
    options = ("-m", "pytest", "-p", "no:cacheprovider", "--tb=short", "--color=no", "-q")
    process = subprocess.Popen(
        windows.command(windows.python, *options, *arguments),
        cwd=ROOT,
        env=windows.environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    said: list[str] = []

    def read(lines: Iterable[str]) -> None:
        for line in lines:
            said.append(line)
            if line.startswith("windows "):
                print(line.rstrip(), file=sys.__stdout__, flush=True)

    assert process.stdout is not None
    # In a thread: what a test has left behind may hold the output open after pytest has ended.
    reader = threading.Thread(target=read, args=(process.stdout,), daemon=True)
    reader.start()
    code = process.wait(timeout)
    reader.join(10)
    if not reader.is_alive():
        process.stdout.close()
    return "" if code == 0 else "".join(said)


UNITS = sorted(
    each.relative_to(ROOT).as_posix()
    for name in ("bridge", "sinks", "wire")
    for each in (ROOT / "tests" / name).rglob("test_*.py")
    if each.name != "test_kubernetes.py"  # an extra, for the nodes of a cluster: not installed here
)


@pytest.mark.timeout(900)
def test_promises(
    windows: WindowsPython, broker: Mosquitto, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each promise above."""
    with capfd.disabled():
        address = f"{broker.host}:{broker.port}"
        where = ("-m", "ground", "tests/ground/windows")
        said = run_tests(windows, *where, timeout=800, GROUND_MQTT=address)
    assert not said, said


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("file", UNITS)
def test_units(windows: WindowsPython, file: str) -> None:
    """The unit tests that are not about POSIX pass."""
    said = run_tests(windows, "--timeout=100", file, timeout=350)
    assert not said, said
