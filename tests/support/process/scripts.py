"""Small programs for a sink to run, and what became of the processes that they started."""

import os
import sys
from pathlib import Path


def shell_script(path: Path, body: str) -> Path:
    """An executable shell script."""
    return executable(path, f"#!/bin/sh\n{body}\n")


def python_script(path: Path, body: str) -> Path:
    """An executable script for this Python, without site packages, for a quick start."""
    return executable(path, f"#!{sys.executable} -SE\n{body}\n")


def runnable(path: Path, body: str) -> Path:
    """A program that this system runs by its own name: a script, or on Windows a batch file."""
    if os.name == "posix":
        return python_script(path, body)
    path.with_suffix(".py").write_text(body, encoding="utf-8")
    line = f'@"{sys.executable}" -SE "{path.with_suffix(".py")}" %*\r\n'
    path.with_suffix(".cmd").write_text(line, encoding="utf-8", newline="")
    return path.with_suffix(".cmd")


def executable(path: Path, text: str) -> Path:
    """A file with this text that may be executed."""
    path.write_text(text, encoding="utf-8", newline="")
    path.chmod(0o755)
    return path


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def pids(path: Path, count: int) -> list[int]:
    """The process ids that a script has written into a file; empty until there are so many."""
    found = path.read_text(encoding="ascii").split() if path.exists() else []
    return [int(pid) for pid in found] if len(found) >= count else []
