"""The state directory of a running bridge is readable by its own account only."""

import stat
import sys

import pytest
from support.eventually import eventually
from support.process.bridge import SEB, BridgeProcess
from support.process.launch import Launch

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")


def test_every_file_is_private_whatever_the_umask(launch: Launch) -> None:
    """With an open umask, store, log, ballast, socket and notes are private."""
    careless = ("/bin/sh", "-c", 'umask 0; exec "$@"', "sh", *SEB)
    with BridgeProcess("run", env=launch.env, home=launch.home, prefix=careless) as bridge:
        bridge.wait_for_records(1)
        eventually((launch.state / "looked").exists, what="a good poll")
        modes = {each.name: each.lstat().st_mode for each in launch.state.rglob("*")}
    assert {"seb.db", "seb.db-wal", "ballast", "looked"} <= modes.keys()
    assert [stat.S_ISSOCK(mode) for mode in modes.values()].count(True) == 1
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    assert launch.state.stat().st_mode & 0o077 == 0
