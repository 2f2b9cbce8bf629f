"""What a process uses, from outside, as Linux tells it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

needs_proc = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells what a process uses in /proc"
)

_ON_THEIR_WAY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """At one moment. `memory` is resident, in MiB."""

    memory: float
    descriptors: int
    threads: int

    def is_within(self, before: Self) -> bool:
        """Whether nothing more is open than before, but for one or two that are on their way."""
        more = (self.threads - before.threads, self.descriptors - before.descriptors)
        return max(more) <= _ON_THEIR_WAY

    def __str__(self) -> str:
        return f"threads {self.threads}, descriptors {self.descriptors}"


def usage(pid: int) -> Usage:
    """What the process uses now. Raises `OSError` where there is none."""
    proc = Path("/proc") / str(pid)
    told = dict(
        line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line
    )
    return Usage(
        memory=int(told["VmRSS"].split()[0]) / 1024,
        descriptors=sum(1 for _ in (proc / "fd").iterdir()),
        threads=int(told["Threads"]),
    )
