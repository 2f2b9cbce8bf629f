"""The packages of the last release, made by its own recipe from its own commit of this repository.

They are made once per machine, which takes as long as `make dist` does for Linux, and kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.ground.cache import ROOT, cache, fetch, say

VERSION: Final = "0.2.0"
_COMMIT: Final = "54687c4305c78eccbd54485b3713c375a627d94a"
"""The last commit whose changelog names nothing newer than this version."""


def released(pattern: str) -> Path:
    """A package of the release; skips the test where it cannot be made.

    `SEB_RELEASED` names a folder with the packages as they were published.
    """
    folder = Path(os.environ.get("SEB_RELEASED") or _made())
    (found,) = folder.glob(pattern)
    return found


def _made() -> Path:
    folder = cache(f"released-{VERSION}")
    dist = folder / "dist"
    if not dist.exists():
        if _git("cat-file", "-e", f"{_COMMIT}^{{commit}}").returncode:
            pytest.skip(f"needs the history of this repository back to {VERSION}")
        say(f"packages of {VERSION}, from its commit (ten minutes)")
        source = folder / "source"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        archive = _git("archive", _COMMIT).stdout
        subprocess.run(["tar", "-C", str(source), "-xf", "-"], input=archive, check=True)
        when = _git("log", "-1", "--format=%ct", _COMMIT).stdout.decode().strip()
        words = [sys.executable, "-m", "release", "linux", "--out", str(folder / "new")]
        fetch(*words, where=source, env={**os.environ, "SOURCE_DATE_EPOCH": when})
        shutil.rmtree(source)
        (folder / "new").rename(dist)
    return dist


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
