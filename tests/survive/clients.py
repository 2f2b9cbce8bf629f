"""Clients at work beside everything else: `load.py` in a process of its own."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.survive.cluster import ROOT

LOAD_PYTHON = ROOT / "build" / "survive" / "bin" / "python"
"""Has the clients' libraries; `make survive` makes it."""


@contextmanager
def load(client: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Clients at work for as long as the block lasts; afterwards the dictionary is filled."""
    found: dict[str, Any] = {}
    process = subprocess.Popen(
        [str(LOAD_PYTHON), "-m", "tests.survive.load"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(dict(client)) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "begun\n", "the client cannot begin"
        yield found
        said, _ = process.communicate("enough\n", timeout=120)
        found.update(json.loads(said))
    finally:
        process.kill()
        process.wait()
