"""A bridge on a disk that fails now and then, started again as a service manager would."""

import sqlite3
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

from support.faults.gated_receiver import GatedReceiver
from support.faults.strace import Injection, under
from support.faults.two_sinks import TwoSinks
from support.imds.restless_imds import RestlessImds
from support.process.bridge import SEB, BridgeProcess

from bridge.simulator.simulator import Simulator

TRY_LATER, CONFIGURATION = 75, 78


class BadDisk(TwoSinks):
    """One store, one file, one webhook, and an IMDS that goes on changing."""

    def __init__(self, home: Path, simulator: Simulator, receiver: GatedReceiver) -> None:
        super().__init__(home, simulator, receiver)
        self.lives = 0
        self.ends: list[int] = []
        """Exit codes of the lives that ended by themselves."""
        self.said: list[str] = []
        """Standard error of every life."""

    def suffer(self, rule: str, *, seconds: float, seed: int) -> None:
        """So long with the fault in force while IMDS changes, half of it from the start of each
        process on, half of it from when one has come to rest; then IMDS is settled.
        """
        with RestlessImds(self.simulator, seed=seed, pause=(0.6, 0.9)) as imds:
            deadline = time.monotonic() + seconds / 2
            while time.monotonic() < deadline:
                self._start_under(rule, deadline)
            self._fall_ill(rule, seconds / 2)
            imds.settle()

    def _start_under(self, rule: str, deadline: float) -> None:
        prefix = [*under(rule), *SEB]
        self.lives += 1
        with BridgeProcess("run", env=self.env, home=self.home, prefix=prefix) as life:
            try:
                self.ends.append(life.wait(max(0.1, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                life.stop()
            self.said.append(life.errors)

    def _fall_ill(self, rule: str, seconds: float) -> None:
        self.lives += 1
        with self.bridge() as life:
            gets = self.simulator.gets
            assert self.simulator.wait_for_gets(gets + 2, timeout=30)
            with Injection(life.pid, rule):
                threading.Event().wait(seconds)
            self.ends += [] if life.stop() == 0 else [-1]
            self.said.append(life.errors)

    def recover(self) -> int:
        """A life without faults that comes to rest; its exit code."""
        gets = self.simulator.history[-1].gets
        with self.bridge() as life:
            assert self.simulator.wait_until_served(gets=gets + 2, timeout=30)
            code = life.stop()
            self.said.append(life.errors)
        return code

    def committed(self) -> list[bytes]:
        """Every record that the store has; nobody may use it."""
        with closing(sqlite3.connect(self.state / "seb.db")) as connection:
            rows = connection.execute("SELECT body FROM records ORDER BY sequence").fetchall()
        return [body for (body,) in rows]
