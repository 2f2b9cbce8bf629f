"""The README's commands, and those of two more pages, on a machine that has nothing yet. Each step
builds on those before it, so they run in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.eventually import eventually
from support.ground.doc_page import PageBlocks
from support.ground.nspawn import SOURCE, Machine, missing
from support.sinks.far_ends import IMDS

PATH = f"export PATH={SOURCE}/.venv/bin:$PATH\n"
SIMULATE = "seb simulate host-maintenance --speed 30 --loop"
SCHEDULED = "seb.event.scheduled.v1"
LAPTOP = "Five minutes on a laptop"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine without the bridge."""
    if why := missing():
        pytest.skip(why)
    with Machine() as made:
        yield made


@pytest.fixture(scope="module")
def page() -> PageBlocks:
    """The README, whose blocks are taken one after the other."""
    return PageBlocks("README.md")


def test_make_demo(machine: Machine, page: PageBlocks) -> None:
    """`make demo` installs what it needs and shows an event; CI runs the other targets."""
    lines = page.take("scheduled-events-bridge").splitlines()
    commands = [line for line in lines if not line.startswith("#")]
    assert set(commands) == {"make demo", "make console", "make test"}
    assert SCHEDULED in machine.run("make demo", network=True, timeout=500)


def test_without_make(machine: Machine, page: PageBlocks) -> None:
    """So do three commands without make."""
    machine.run("rm -rf .venv")
    script = page.take("scheduled-events-bridge")
    assert SCHEDULED in machine.run(script, network=True, timeout=500)


def test_a_laptop(machine: Machine, page: PageBlocks) -> None:
    """A simulator in one terminal and a bridge in another: check, records, page, status, tail."""
    machine.run("rm -rf .venv")
    machine.run(page.take(LAPTOP), network=True, timeout=500)
    simulate, run = page.take(LAPTOP), page.take(LAPTOP)
    machine.run("systemctl stop mosquitto")
    machine.run(f"systemd-run --quiet --unit=simulate bash -c '{PATH}{simulate}'")
    output = machine.look(PATH + run, 20)
    assert "FAIL" not in output
    assert SCHEDULED in output
    page_and_status = "(sleep 8; curl -sf http://127.0.0.1:9469/ | head -1; seb status) & "
    assert "<!doctype html>" in machine.look(PATH + page_and_status + run, 20).lower()


def test_a_broker(machine: Machine, page: PageBlocks) -> None:
    """With Mosquitto on the same machine, a subscriber sees topics and records."""
    output = machine.look(
        f"{PATH}export SEB_IMDS__URL=http://127.0.0.1:8169\n{page.take(LAPTOP)}", 25
    )
    assert "seb/v1/default/vm/" in output
    assert SCHEDULED in output


def test_try_a_program(machine: Machine) -> None:
    """The part "Try it" of docs/prepare-and-recover.md: the mark of drain.sh comes and goes."""
    prepare = PageBlocks("docs/prepare-and-recover.md")
    prepare.take("On Linux")  # systemd/test_b_programs.py runs it
    simulate, run = prepare.take("Try it"), prepare.take("Try it")
    machine.run("systemctl stop simulate; rm -rf /tmp/seb")
    machine.run(f"systemd-run --quiet --unit=reboot bash -c '{PATH}{simulate}'")
    watch = "(while sleep 0.3; do echo marks: $(ls /tmp/drain 2>/dev/null); done) &\n"
    said = machine.look(PATH + watch + run, 45).splitlines()
    marks = [line == "marks:" for line in said if line.startswith("marks:")]
    assert False in marks
    assert marks[-1]
    assert prepare.left() == []


def test_a_sink_of_ones_own(machine: Machine) -> None:
    """docs/writing-a-sink.md: once the package is installed, the bridge lists its kind."""
    own = PageBlocks("docs/writing-a-sink.md")
    output = machine.run(PATH + own.take("1. Three things make a sink"), network=True)
    assert "email" in output
    assert own.left() == []


def test_keys(machine: Machine, page: PageBlocks) -> None:
    """The key of a control plane, and the file that each VM trusts."""
    machine.run(f"{PATH}cd /root\n{page.take('Approving')}\nseb keys show trust.jwks")


def test_a_service_in_four_lines(machine: Machine, page: PageBlocks) -> None:
    """The short way to a service works, from a file of settings that is all comments."""
    script = page.take("On a VM")
    install, start = script.split("systemctl daemon-reload")
    machine.run(install, network=True, timeout=500)
    machine.run(f"printf '%s' '{IMDS}' >> /etc/seb/seb.env")
    assert "active (running)" in machine.run(f"systemctl daemon-reload{start}")
    status = "/opt/seb/bin/seb status"
    machine.run(f"systemd-run --quiet --unit=again bash -c '{PATH}{SIMULATE}'")
    eventually(lambda: machine.outcome(status).returncode == 0, what="status", timeout=60)


def test_everything_was_executed(page: PageBlocks) -> None:
    """No command of the README is left out; the chart's is run by the tests of the chart."""
    assert [each.split()[0] for each in page.left()] == ["helm"]
