"""`seb console approve`, `leave` and `trust`, and the example that uses the API: against a console,
a broker, a bridge and an IMDS that counts POSTs.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.console import forked_process
from support.console.decision_bench import DecisionBench, audit
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.process.bridge import BridgeProcess

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "console_client.py"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecisionBench]:
    """One VM that takes commands."""
    with DecisionBench(tmp_path_factory.mktemp("bench")) as made:
        yield made


@pytest.fixture(scope="module")
def console(bench: DecisionBench) -> Iterator[ConsoleProcess]:
    """A console that can approve."""
    with bench.console() as running:
        yield running


def test_an_approval_is_followed_to_its_end(bench: DecisionBench, console: ConsoleProcess) -> None:
    """The command shows the VMs and prints each step as a line; exit code 0 means that the approval
    is confirmed.
    """
    event = bench.due(console, bench.announce())
    event_id = event["eventId"]
    done = console.run("approve", event_id, "--reason", "window of tonight", "--yes")
    assert done.returncode == 0, done.stderr
    assert "An approval releases, now:\n  web-0\n" in done.stderr
    states = [line.split()[0] for line in done.stdout.splitlines()]
    assert states == ["sent", "accepted", "posted", "confirmed"]
    assert bench.effective.count(event_id) == 1
    assert [row["reason"] for row in audit(console) if row.get("eventId") == event_id] == [
        "window of tonight"
    ]


def test_an_approval_need_not_be_waited_for(bench: DecisionBench, console: ConsoleProcess) -> None:
    """With --no-wait exit code 0 means that the approval is sent; a second one is refused."""
    event = bench.due(console, bench.announce())
    seen = ("--fingerprint", event["fingerprint"])
    words = ("approve", event["eventId"], "--reason", "r", "--yes", "--no-wait", "--json", *seen)
    done = console.run(*words)
    assert done.returncode == 0, done.stderr
    (step,) = map(json.loads, done.stdout.splitlines())
    assert (step["eventId"], step["state"]) == (event["eventId"], "approving")
    again = console.run(*words)
    assert again.returncode == 1
    assert "seb console: " in again.stderr


def test_a_wait_that_is_no_number_is_refused(console: ConsoleProcess) -> None:
    """A wait that is no number ends with exit code 2, and the console is not asked."""
    done = console.run("approve", "E-1", "--reason", "r", "--yes", "--timeout", "nan")
    assert done.returncode == 2
    assert "not a number" in done.stderr


def test_what_was_not_seen_is_not_approved(bench: DecisionBench, console: ConsoleProcess) -> None:
    """With another fingerprint, without a terminal to ask at, or for an unknown event, nothing is
    written.
    """
    event = bench.due(console, bench.announce())
    before = len(audit(console))
    for words, code in (
        ((event["eventId"], "--reason", "r", "--yes", "--fingerprint", "sha256:0"), 1),
        ((event["eventId"], "--reason", "r"), 2),
        ((event["eventId"], "--reason", " ", "--yes"), 2),
        (("no-such-event", "--reason", "r", "--yes"), 1),
    ):
        for command in ("approve", "leave"):
            done = console.run(command, *words)
            assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert len(audit(console)) == before
    left = console.run("leave", event["eventId"], "--reason", "low traffic", "--yes")
    assert left.returncode == 0, left.stderr
    assert left.stdout.startswith(f"left  {event['eventId']}  until 20")
    assert console.events()[event["eventId"]]["decision"]["state"] == "left"
    assert event["eventId"] not in bench.effective


def test_the_trust_file_is_what_the_vms_have(bench: DecisionBench, console: ConsoleProcess) -> None:
    """The command prints the public members of the key and nothing else; without a key it says what
    to set.
    """
    done = console.run("trust")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(bench.trust.read_text())
    both = json.loads(console.run("trust", "--also", str(bench.key)).stdout)["keys"]
    assert len(both) == 2
    assert all("d" not in key for key in both)
    console.environ, kept = {**console.environ}, console.environ
    del console.environ["SEB_CONSOLE_KEY"]
    none = console.run("trust")
    console.environ = kept
    assert none.returncode == 78
    assert "seb keys generate" in none.stderr


def test_the_example_shares_no_code_with_the_console() -> None:
    """The example imports only requests and Python's own modules, and has thirty lines of code."""
    tree = ast.parse(EXAMPLE.read_text(encoding="utf-8"))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported - sys.stdlib_module_names == {"requests"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))
    docstring = tree.body[0]
    assert docstring.end_lineno is not None
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()[docstring.end_lineno :]
    assert len([line for line in lines if line.strip()]) <= 30


def test_the_example_approves_with_a_token(
    bench: DecisionBench, console: ConsoleProcess, tmp_path: Path
) -> None:
    """The example approves short pauses of single VMs and nothing else, and prints how
    each ended.
    """
    made = console.run("token", "add", "robot", "--role", "approver", "--days", "1")
    assert made.returncode == 0, made.stderr
    env = {"SEB_CONSOLE_URL": console.url, "SEB_CONSOLE_TOKEN": made.stdout.strip()}
    prefix = (sys.executable, str(EXAMPLE))
    with BridgeProcess(env=env, home=tmp_path, prefix=prefix) as example:
        reboot = bench.due(console, bench.announce("Reboot"))["eventId"]
        freeze = bench.announce("Freeze")
        example.wait_until(lambda: len(example.output) >= 1, "the end of the approval")
        line = example.output[0].text.decode()
    assert line.split() == [freeze, "confirmed"]
    assert bench.effective.count(freeze) == 1
    assert reboot not in bench.effective
    (row,) = [row for row in audit(console) if row.get("eventId") == freeze]
    assert (row["actor"], row["reason"]) == ("token:robot", "a short pause of one VM")


def test_no_text_moves_the_terminal(tmp_path: Path) -> None:
    """No command that shows an event prints control characters of names, types or answers."""
    bad = "E\x1b[31m\u202e"
    with ConsoleStage(tmp_path) as stage:
        vm = FakeVm(name=bad)
        stage.put(vm.event("E", event_type=bad, not_before=stage.moment(600), now=stage.now))
        for words in (
            ("approve", "E", "--reason", "r", "--yes"),
            ("leave", "E", "--reason", "r", "--yes"),
            ("events",),
            ("audit",),
        ):
            done = forked_process.finished(["console", *words], env={"SEB_CONSOLE_URL": stage.url})
            assert done.stdout + done.stderr
            assert "\x1b" not in done.stdout + done.stderr
            assert "\u202e" not in done.stdout + done.stderr


def test_an_approval_is_followed_over_a_restart_of_the_console(
    bench: DecisionBench, console: ConsoleProcess
) -> None:
    """If the console is killed and comes back, the command waits and prints the end."""
    event = bench.due(console, bench.announce())
    words = ("approve", event["eventId"], "--reason", "r", "--yes")
    with subprocess.Popen(
        console.command(*words),
        env={**console.environ, "SEB_CONSOLE_URL": console.url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline().startswith("sent")
        console.kill()
        console.start()
        out, err = following.communicate(timeout=90)
    assert (following.returncode, out.splitlines()[-1].split()[0]) == (0, "confirmed"), err
    assert bench.effective.count(event["eventId"]) == 1
