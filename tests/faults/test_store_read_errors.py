"""A disk that gives an error for one read of a sound store, at a start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.faults import strace
from support.store_helpers import NOW, draft, environment, opened

from bridge.store.opening import FILE_NAME, open_store

pytestmark = pytest.mark.skipif(strace.why_not() is not None, reason=str(strace.why_not()))
_RECORDS = 40
_READS = 12
"""More than a start makes of such a store."""
_OPEN = """
import sys
from pathlib import Path
from support.store_helpers import NOW
from bridge.store.opening import open_store
from sinks.shared.errors import TryLaterError
try:
    store, reset = open_store(Path(sys.argv[1]), NOW)
except TryLaterError as error:
    print("later", error)
else:
    print("reset" if reset else "sound", store.head)
"""
_USE = """
import sys
from pathlib import Path
from support.store_helpers import NOW
from bridge.store.database import StoreError
from bridge.store.opening import open_store
store, _ = open_store(Path(sys.argv[1]), NOW)
store.read("PRAGMA cache_size=1")
print("open", flush=True)
sys.stdin.readline()
try:
    store.read("SELECT count(body) FROM records")
except StoreError:
    print(store.damaged)
"""


def _opened_with(directory: Path, *, error: str, when: int) -> str:
    """What a start says if one read of the store's file fails."""
    tampered = [
        *("strace", "-f", "-qq", "-o", os.devnull, "-P", str(directory / FILE_NAME)),
        *("-e", "trace=pread64", "-e", f"inject=pread64:error={error}:when={when}"),
    ]
    opening = [sys.executable, "-c", _OPEN, str(directory)]
    found = subprocess.run(
        [*tampered, *opening],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return found.stdout


@pytest.mark.parametrize("error", ["EIO", "ESTALE"])
def test_one_error_sets_no_sound_store_aside(tmp_path: Path, error: str) -> None:
    """Whichever read fails, the store is used as it is, or the start says to try it later."""
    with opened(tmp_path / "used") as store:
        store.commit([draft(number) for number in range(1, _RECORDS + 1)])
    answers = []
    for when in range(1, _READS + 1):
        directory = shutil.copytree(tmp_path / "used", tmp_path / str(when))
        answers.append(_opened_with(directory, error=error, when=when).split()[:2])
        assert not list(directory.glob("*.kept"))
    assert ["sound", str(_RECORDS)] in answers
    assert "reset" not in {words[0] for words in answers}


def test_one_error_while_a_sound_store_is_in_use_loses_nothing(tmp_path: Path) -> None:
    """SQLite takes the error for damage, and the run ends. The next one finds the store sound."""
    with opened(tmp_path) as store:
        store.commit([draft(number) for number in range(1, 2_000)])
    using = subprocess.Popen(
        [sys.executable, "-c", _USE, str(tmp_path)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert using.stdout is not None
    assert using.stdout.readline() == "open\n"
    rule = "pread64:error=EIO:when=1"
    with strace.Injection(using.pid, rule, path=tmp_path / FILE_NAME):
        said, _ = using.communicate("\n", timeout=60)
    assert "malformed" in said
    store, reset = open_store(tmp_path, NOW)
    with closing(store):
        assert reset is None
        assert store.head == 1_999
