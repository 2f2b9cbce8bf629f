"""The command `seb simulate`."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from support.imds.client import ask

from bridge.cli.simulate import command
from bridge.simulator.scenarios import SCENARIOS

RUN = [sys.executable, "-c", "from bridge.cli.simulate import command; command()"]
FAST = ["--listen", "127.0.0.1:0", "--speed", "20000"]


def run(*arguments: str) -> Result:
    """Run the command in this process; return its outcome."""
    return CliRunner().invoke(command, list(arguments))


def test_standard_output_is_the_url_alone() -> None:
    """Standard output is one line that can be copied into an environment; each step is on standard
    error.
    """
    result = run("live-migration", *FAST, "--vm", "db_0")
    assert result.exit_code == 0
    assert result.stdout.startswith("SEB_IMDS__URL=http://127.0.0.1:")
    assert result.stdout.count("\n") == 1
    for text in ("incarnation 2, 1 event\n", "Freeze Scheduled on db_0, db_1, not before"):
        assert text in result.stderr
    assert "incarnation 4, 0 events" in result.stderr


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_plays_out(name: str) -> None:
    """Each named scenario can be played, and ends with exit code 0."""
    assert run(name, *FAST).exit_code == 0


def test_many_resources_are_not_all_printed() -> None:
    """A step that names a hundred VMs does not print them all."""
    assert "on vm-0, vm-1 and 98 more," in run("many-resources", *FAST).stderr


def test_scenarios_are_listed() -> None:
    """`--list` prints each name with its description, and needs no scenario."""
    result = run("--list")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert list(lines) == list(SCENARIOS)
    assert all(SCENARIOS[name].description in told for name, told in lines.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["live-migraton"], "try live-migration"),
        ([], "Missing argument"),
        (["preempt", "--listen", "8169"], "is not ADDR:PORT"),
        (["preempt", "--listen", "127.0.0.1:99999"], "is not ADDR:PORT"),
        (["preempt", "--listen", "169.254.169.254:80"], "real metadata service"),
        (["preempt", "--listen", "nowhere.example:80"], "not an IP address"),
        (["preempt", "--speed", "0"], "not in the range"),
        (["preempt", "--speed", "nan"], "not a number"),
        (["preempt", "--fault", "slwo=3"], "try slow"),
    ],
)
def test_a_wrong_call_is_exit_2(arguments: list[str], message: str) -> None:
    """A wrong call ends with 2, and standard error says what is wrong and what would be right."""
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_a_port_in_use_is_a_clear_error() -> None:
    """If the port is in use, the error names the address and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("preempt", "--listen", address)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"cannot listen on {address}" in result.stderr
    assert "choose another port" in result.stderr


@pytest.fixture
def looping() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `seb simulate --loop` in a process of its own; yield it with its URL."""
    arguments = ["hardware-failure", *FAST, "--loop", "--fault", "503", "--fault", "empty"]
    # Ctrl-C on Windows reaches a process group: a group of its own keeps the tests out of it.
    flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    with subprocess.Popen(
        [*RUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        creationflags=flags,
    ) as process:
        watchdog = threading.Timer(30, process.kill)
        watchdog.start()
        assert process.stdout is not None
        yield process, process.stdout.readline().strip().partition("=")[2]
        watchdog.cancel()
        process.kill()


if sys.platform == "win32":
    ENDINGS = [signal.CTRL_BREAK_EVENT]
else:
    ENDINGS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("ending", ENDINGS)
def test_it_serves_until_ctrl_c(
    looping: tuple[subprocess.Popen[str], str], ending: signal.Signals
) -> None:
    """A looping simulator plays its faults, then answers rightly, and ends with exit code 0."""
    process, url = looping
    replies = [ask(url) for _ in range(3)]
    try:
        process.send_signal(ending)
    except OSError as error:  # a Windows without a console of its own for each group, such as Wine
        pytest.skip(f"the key cannot be pressed here: {error}")
    assert process.wait(10) == 0
    assert [(reply.status, reply.body == b"") for reply in replies] == [
        (503, False),
        (200, True),
        (200, False),
    ]
