"""The bridge within the limits of its systemd unit, which this test applies without systemd."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.eventually import eventually
from support.process.bridge import SEB, BridgeProcess, run_seb
from support.process.refuse_new_code import UNAVAILABLE
from support.sinks.five_sinks import FiveSinks

from bridge.cli.systemd_unit import unit
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux' own")

ANALYZE = shutil.which("systemd-analyze") or ""
STRACE = shutil.which("strace") or ""
LAUNCHER = Path(__file__).parent.parent / "support" / "process" / "refuse_new_code.py"


def values(name: str) -> list[list[str]]:
    """Return the unit's values of a name, a list of words per line."""
    found = re.findall(rf"^{name}=(.*)$", unit(["/opt/seb/bin/seb"]), re.MULTILINE)
    return [line.split() for line in found]


def members(group: str) -> set[str]:
    """Return the system calls of a group, as this machine's systemd knows them."""
    if not group.startswith("@"):
        return {group}
    result = subprocess.run(
        [ANALYZE, "syscall-filter", group], capture_output=True, text=True, check=True
    )
    names = [line.strip() for line in result.stdout.splitlines()[1:]]
    return {each for name in names if name and name[0] != "#" for each in members(name)}


def allowed() -> set[str]:
    """Return the system calls that the unit's filter allows."""
    calls: set[str] = set()
    for words in values("SystemCallFilter"):
        refused = words[0].startswith("~")
        named = {call for word in words for call in members(word.removeprefix("~"))}
        calls = calls - named if refused else calls | named
    return calls


@pytest.mark.skipif(not (ANALYZE and STRACE), reason="needs systemd-analyze and strace")
def test_no_system_call_is_missed(simulator: Simulator, tmp_path: Path) -> None:
    """A bridge with a sink of every kind uses only allowed system calls and socket families, from
    start to stop.
    """
    trace = tmp_path / "trace"
    (tmp_path / "far").mkdir()
    # -D: the bridge, not strace, is the child that is told to stop.
    strace = (STRACE, "-D", "-f", "-q", "-o", str(trace), "-e", "signal=none", *SEB)
    with FiveSinks(tmp_path / "far") as sinks:
        env = {
            **sinks.env,
            "SEB_IMDS__URL": simulator.url,
            "SEB_STATE_DIR": str(tmp_path / "state"),
            "SEB_HTTP__LISTEN": "127.0.0.1:0",
            "SEB_SINK__PROGRAM__COMMAND": "cat",
        }
        with BridgeProcess("run", env=env, home=tmp_path, prefix=strace) as bridge:
            bridge.wait_for_log("sink_up", count=6)
            simulator.announce(SimulatedEvent())
            bridge.wait_for_records(1, types="seb.event.")
            assert bridge.stop() == 0
        end = [str(bridge.pid), "+++", "exited", "with", "0", "+++"]  # a short pid is padded
        eventually(
            lambda: end in [line.split() for line in trace.read_text().splitlines()],
            what="the end of the trace",
            timeout=60.0,
        )
    text = trace.read_text()
    used = set(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))
    assert {"socket", "fdatasync", "fsync", "execve"} <= used  # the trace holds all of it
    if os.geteuid() == 0:
        used.discard("fchown")  # SQLite gives its files their owner, as root only
    assert used - allowed() == set()
    families = set(re.findall(r"\bsocket\((AF_\w+)", text))
    # Name servers' answers are sorted by the machine's addresses; without those, as they come.
    assert families - {"AF_NETLINK"} <= set(*values("RestrictAddressFamilies"))


def test_nothing_makes_code_as_it_runs(tmp_path: Path) -> None:
    """No library of the bridge needs memory for new code, which MemoryDenyWriteExecute forbids."""
    prefix = (sys.executable, str(LAUNCHER), *SEB)
    result = run_seb("demo", home=tmp_path, prefix=prefix)
    if result.code == UNAVAILABLE:
        pytest.skip("this kernel cannot refuse it (Linux 6.3 can)")
    assert (result.code, result.err) == (0, "")
