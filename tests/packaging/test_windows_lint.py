"""The lint that keeps `os.kill` in one module: it ends a process on Windows, whatever the signal.

What Windows does not have at all is found by `mypy --platform win32`.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
RULE = "TID251"


def ruff(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    """What ruff says of this one rule, with the project's configuration."""
    return subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", RULE, "--no-cache", *arguments],
        cwd=ROOT,
        input=code,
        capture_output=True,
        text=True,
        check=False,
    )


def found(code: str, path: str) -> set[str]:
    """What it finds in code that would stand in a file."""
    result = ruff("--output-format", "json", "--stdin-filename", path, "-", code=code)
    return {each["code"] for each in json.loads(result.stdout)}


def test_it_bites() -> None:
    """In the bridge and in a sink."""
    for path in ("bridge/events/poller.py", "sinks/kinds/file.py"):
        assert found("import os\nos.kill(1, 9)\n", path) == {RULE}


def test_it_leaves_alone_what_is_allowed() -> None:
    """The two modules that differ between systems, tests, and what is the same everywhere."""
    for path in ("bridge/system.py", "sinks/kinds/program/process.py", "tests/bridge/test_host.py"):
        assert found("import os\nos.kill(1, 9)\n", path) == set()
    code = "import os, signal, socket\nos.getpid(), signal.SIGTERM, socket.AF_INET\n"
    assert found(code, "bridge/events/poller.py") == set()


def test_the_code_is_clean() -> None:
    """No line of the bridge or of a sink, and no exception from the rule beside it."""
    result = ruff("--ignore-noqa", "bridge", "sinks", "wire")
    assert (result.returncode, result.stdout) == (0, "All checks passed!\n")
