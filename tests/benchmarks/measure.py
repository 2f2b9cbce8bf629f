"""How a process is run and measured from outside, by /proc of Linux."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bridge.simulator.simulator import Simulator

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = sys.executable
SEB: Final = (PYTHON, "-m", "bridge")
_PATIENCE: Final = 20.0
_CPU_OF_PROCESS: Final = 2  # Linux: the clock of a process is (~pid << 3) | CPUCLOCK_SCHED


class EndedError(RuntimeError):
    """A process that was to run has ended; the message holds the end of what it said."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child: this tree's code, no SEB_ variable but those given."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SEB_")}
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return {**clean, "PYTHONPATH": path, **(more or {})}


@contextmanager
def running(
    command: Sequence[str],
    scratch: Path,
    variables: Mapping[str, str] | None = None,
    *,
    may_end: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended, by its id, at the end of the block.

    It runs in `scratch`, so that nobody's `.env` is read. Raises `EndedError` if it ended by
    itself, unless `may_end`.
    """
    with (scratch / "said").open("ab") as said:
        process = subprocess.Popen(
            command,
            env=environment(variables),
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    try:
        yield process
    except TimeoutError as error:
        if code := process.poll():
            raise _ended(command, code, scratch) from error
        raise
    else:
        code = process.poll()
        if code is not None and (code or not may_end):
            raise _ended(command, code, scratch)
    finally:
        _end(process)


def _ended(command: Sequence[str], code: int, scratch: Path) -> EndedError:
    last = (scratch / "said").read_text(errors="replace")[-2000:]
    return EndedError(f"{' '.join(command)} ended with {code}:\n{last}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def child(module: str, *arguments: object, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """A program of the benchmarks that is spoken to over its standard input and output, and killed
    at the end of the block.
    """
    with subprocess.Popen(
        [PYTHON, "-m", f"tests.benchmarks.{module}", *map(str, arguments)],
        env=environment(),
        cwd=scratch,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def bridge(
    simulator: Simulator, scratch: Path, state: Path, variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A bridge that polls this IMDS and keeps its store there; `variables` count more."""
    fields = {
        "SEB_IMDS__URL": simulator.url,
        "SEB_STATE_DIR": str(state),
        "SEB_HTTP__LISTEN": "127.0.0.1:0",
        **variables,
    }
    with running([*SEB, "run"], scratch, fields) as process:
        yield process


def run(command: Sequence[str], scratch: Path, variables: Mapping[str, str] | None = None) -> float:
    """Run a command to its end; how many seconds it took."""
    started = time.monotonic()
    subprocess.run(
        command,
        env=environment(variables),
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    return time.monotonic() - started


def cpu_seconds(pid: int) -> float:
    """User and system time of the process so far, its threads that have ended included."""
    return time.clock_gettime((~pid << 3) | _CPU_OF_PROCESS)


def resident_mib(pid: int) -> float:
    """Resident memory of the process now, in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20


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


_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
