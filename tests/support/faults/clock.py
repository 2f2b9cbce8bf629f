"""A bridge in a process of its own, on a wall clock that tests set; see `clock_fault_child`."""

import mmap
import struct
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from support.eventually import eventually
from support.process.bridge import BridgeProcess
from support.sinks.five_sinks import FiveSinks

from bridge.simulator.simulator import Simulator

CHILD: Final = Path(__file__).with_name("clock_child.py")
HOUR: Final = 3600.0
YEARS: Final = 30 * 365.25 * 86400
"""Thirty of them, in seconds."""
HANG: Final = 20.0
"""Seconds: who takes longer than this has stopped; how long it took is told."""
GROWTH: Final = 20.0
"""MiB more memory that a bridge may have after any number of jumps."""


class WrongClock:
    """The wall clock of the bridges that it starts, wrong by so many seconds; a context manager."""

    def __init__(self, directory: Path, wrong_by: float = 0.0) -> None:
        self._path = directory / "clock"
        self._path.write_bytes(struct.pack("d", wrong_by))
        with self._path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()

    @property
    def wrong_by(self) -> float:
        """Seconds by which it is ahead."""
        seconds: float = struct.unpack_from("d", self._memory, 0)[0]
        return seconds

    def set(self, wrong_by: float) -> None:
        """Set it, for the bridges that run as well."""
        struct.pack_into("d", self._memory, 0, wrong_by)

    def set_to(self, moment: datetime) -> None:
        """Set it to that moment."""
        self.set((moment - datetime.now(UTC)).total_seconds())

    def bridge(self, env: Mapping[str, str], home: Path) -> BridgeProcess:
        """`seb run` by this clock, not started."""
        return BridgeProcess(
            "run",
            env={**env, "CLOCK_FAULT": str(self._path)},
            home=home,
            prefix=(sys.executable, str(CHILD)),
        )


def all_of(sinks: FiveSinks, bridge: BridgeProcess) -> dict[str, list[bytes]]:
    """What every sink has, once each has as much as standard output: a subscriber may have what
    the broker has acknowledged a little later.
    """
    wanted = len(bridge.output)
    eventually(
        lambda: all(len(set(each)) >= wanted for each in sinks.received(bridge).values()),
        what="everything, at every sink",
        timeout=60,
    )
    return sinks.received(bridge)


def polls_again(simulator: Simulator) -> float:
    """Seconds until two more polls came: the first may have been under way."""
    begun = time.monotonic()
    assert simulator.wait_for_gets(simulator.gets + 2, timeout=HANG), "no more polls"
    return time.monotonic() - begun
