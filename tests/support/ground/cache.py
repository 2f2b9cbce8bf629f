"""Where the grounds keep what is slow to build, and how they say what they are doing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def cache(name: str) -> Path:
    """The directory of one ground, which outlives a run; SEB_GROUND_CACHE moves it."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    made = Path(os.environ.get("SEB_GROUND_CACHE") or Path(base, "seb-ground")) / name
    made.mkdir(parents=True, exist_ok=True)
    return made


def say(text: str) -> None:
    """A word on a step that takes minutes, past pytest's capture."""
    print(text, file=sys.__stderr__, flush=True)


def fetch(*words: str, where: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command that gets packages from outside; its standard output.

    Skips the test, with the command's last words, where that fails: the ground cannot be had.
    """
    done = subprocess.run(
        words,
        cwd=where,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        pytest.skip(f"{' '.join(words[:5])} could not get its packages: {last[:300]}")
    return done.stdout
