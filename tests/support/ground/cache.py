"""Where the grounds keep what is slow to build, and how they say what they are doing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

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
