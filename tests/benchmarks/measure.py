"""How a process is measured from outside: its CPU time and its memory."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended, by its id, at the end of the block."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SEB_")}
    process = subprocess.Popen(
        command,
        env={**clean, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def cpu_seconds(pid: int) -> float:
    """User and system time of the process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Resident memory of the process now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise LookupError("no VmRSS")


def idle(pid: int, seconds: float) -> tuple[float, float]:
    """Share of a core in percent over so many seconds, and resident MiB at their end."""
    before = cpu_seconds(pid)
    started = time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(pid) - before) / (time.monotonic() - started), resident_mib(pid)


def machine() -> str:
    """This machine in a line."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    version = platform.python_version()
    return f"{os.cpu_count()} cores of {model}, {platform.system()}, Python {version}"
