"""The locks of dependencies: what pip makes of them also after newer versions have come out."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_the_extras_that_packages_ask_for(name: str) -> None:
    """Older versions of pip look for the newest version of a package whose extras have no pin, and
    refuse it, as it has no hash.
    """
    pinned = pins((ROOT / name).read_text())
    missing = {
        str(wanted)
        for each in distributions()
        if canonicalize_name(each.metadata["Name"]) in pinned
        for wanted in map(Requirement, each.requires or ())
        if (wanted.marker is None or wanted.marker.evaluate({"extra": ""}))
        and not wanted.extras <= pinned.get(canonicalize_name(wanted.name), wanted.extras)
    }
    assert missing == set()


def pins(lock: str) -> dict[str, set[str]]:
    """Return the names that a lock pins, each with its extras."""
    found = re.findall(r"^([a-z0-9._-]+)(?:\[([^\]]*)\])?==", lock, re.MULTILINE)
    return {
        str(canonicalize_name(name)): set(filter(None, re.split(r",\s*", extras)))
        for name, extras in found
    }
