"""`seb demo`, which is the first command that many people run."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE
from support.process.bridge import SEB, BridgeProcess, clean_environment

# Notes every address that the process connects to, and then is `seb`.
SPY = """
import sys
def note(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        with open("connected", "a") as file:
            print(arguments[1][0], file=file)
sys.addaudithook(note)
from bridge.cli import main
main()
"""


@dataclass(frozen=True, kw_only=True)
class Demos:
    """Three demos that run at the same time, because each takes five seconds."""

    piped: BridgeProcess
    home: Path
    elsewhere: socket.socket
    screen: bytes | None
    """Nothing where there are no pseudo terminals."""
    seen_enough: tuple[int, bytes]


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demos]:
    """The demos: one into a pipe with hostile settings, one on a terminal, one whose reader ends
    early.
    """
    home, rest = tmp_path_factory.mktemp("piped"), tmp_path_factory.mktemp("rest")
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)
        env = hostile(f"127.0.0.1:{elsewhere.getsockname()[1]}", home)
        with BridgeProcess("demo", env=env, home=home, prefix=(sys.executable, "-c", SPY)) as piped:
            shown = None if sys.platform == "win32" else on_a_terminal(rest)
            leaving = popen(rest, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            seen_enough = read_a_line(leaving)
            screen = shown and read_all(*shown)
            assert piped.wait() == 0
        yield Demos(
            piped=piped, home=home, elsewhere=elsewhere, screen=screen, seen_enough=seen_enough
        )


def hostile(other: str, home: Path) -> dict[str, str]:
    """Return settings that would make the demo use something else, if it read them."""
    return {
        "SEB_IMDS__URL": f"http://{other}",
        "SEB_SINK__WEBHOOK__URL": f"http://{other}/hook",
        "SEB_STATE_DIR": str(home / "state"),
        "SEB_LOG__LEVEL": "nonsense",
    }


def popen(home: Path, **streams: int) -> subprocess.Popen[bytes]:
    """Start `seb demo` on these streams."""
    env = clean_environment(home, {"NO_COLOR": "1", "TERM": "xterm"})
    command = [*SEB, "demo"]
    return subprocess.Popen(command, env=env, cwd=home, stdin=subprocess.DEVNULL, **streams)


def on_a_terminal(home: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start it on a terminal; return the process, and the descriptor from which its screen is
    read.
    """
    import pty  # noqa: PLC0415  # Windows has none

    ours, theirs = pty.openpty()
    process = popen(home, stdout=theirs, stderr=theirs)
    os.close(theirs)
    return process, ours


def read_a_line(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Read one line and close the pipe; return the exit code and standard error."""
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    return process.wait(PATIENCE), errors


def read_all(process: subprocess.Popen[bytes], descriptor: int) -> bytes:
    """Return everything until the other end is closed, for which Linux raises an error."""
    chunks = []
    try:
        while chunk := os.read(descriptor, 65536):
            chunks.append(chunk)
    except OSError:
        pass
    finally:
        os.close(descriptor)
    assert process.wait(10) == 0
    return b"".join(chunks)


def test_piped_it_prints_the_life_of_an_event(demos: Demos) -> None:
    """Into a pipe it prints only JSON lines: an event of this VM is scheduled, started and
    ended.
    """
    lives: list[dict[str, Any]] = [
        record["data"] for record in demos.piped.records if record["type"].startswith("seb.event.")
    ]
    assert [each["transition"] for each in lives] == ["scheduled", "started", "ended"]
    assert {each["affectsThisVm"] for each in lives} == {True}
    assert len({each["event"]["eventId"] for each in lives}) == 1
    assert demos.piped.errors == ""


def test_it_shows_a_preparation(demos: Demos) -> None:
    """The demo shows how the VM's program prepares before the event starts."""
    records = [each["data"] for each in demos.piped.records if "preparation" in each["type"]]
    assert [each["state"] for each in records][:2] == ["preparing", "prepared"]


def test_it_touches_nothing_but_its_own_simulator(demos: Demos) -> None:
    """No setting reaches the demo; it connects only to loopback, and leaves no file."""
    with pytest.raises(BlockingIOError):
        demos.elsewhere.accept()
    assert set((demos.home / "connected").read_text().split()) == {"127.0.0.1"}
    assert [path.name for path in demos.home.iterdir()] == ["connected"]


def test_on_a_terminal_it_is_readable(demos: Demos) -> None:
    """On a terminal it prints a readable line for each record, with an introduction and an end,
    within eighty columns.
    """
    if demos.screen is None:
        pytest.skip("Windows has no pseudo terminals")
    screen = demos.screen.decode()
    lines = screen.splitlines()
    assert "A simulated VM is moved to another host" in lines[0]
    for word in ("scheduled  Freeze", "started    Freeze", "ended      Freeze Completed"):
        assert [line for line in lines if word in line], word
    assert "{" not in screen
    assert max(len(line) for line in lines if not line[:1].isdecimal()) <= 80


def test_a_reader_that_has_seen_enough(demos: Demos) -> None:
    """`seb demo | head -2`, which the demo recommends, ends with success and no message."""
    assert demos.seen_enough == (0, b"")
