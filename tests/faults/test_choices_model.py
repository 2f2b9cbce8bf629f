"""However the settings and the kind of a sink change, and whatever it or the disk refuses, no end
is hidden from it.
"""

import random
import tempfile
from pathlib import Path

import pytest
from support.faults.sizes import sizes
from support.records.choices import ChoosingBench

from bridge.store import ballast, database

MEMORY = Path("/dev/shm")
"""What is on disk is not the subject here, and many stores are made."""


@sizes("histories, first", (25, 1), (800, None), (8_000, None))
def test_a_sink_hears_of_every_end(
    monkeypatch: pytest.MonkeyPatch, histories: int, first: int | None
) -> None:
    """Filters, kinds, removals, refusals, kills, a full disk and a person who has dead records
    tried again.
    """
    monkeypatch.setattr(ballast, "SIZE_BYTES", 1)
    monkeypatch.setattr(database, "PRUNE_EVERY", 1)
    seed = random.randrange(10**9) if first is None else first
    for number in range(seed, seed + histories):
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as root:
            try:
                ChoosingBench(Path(root), number).live(80)
            except Exception as error:
                error.add_note(f"seed {number}")
                raise
