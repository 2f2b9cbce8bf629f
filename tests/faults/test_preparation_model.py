"""Over any history, a POST finds the VM prepared, and what has prepared hears of the end."""

import logging
import random
import tempfile
from pathlib import Path

import pytest
from support.commands.model_bench import Bugs
from support.commands.preparation_model import PreparingBench
from support.faults.sizes import sizes

from bridge.store import ballast

MEMORY = Path("/dev/shm")
"""What is on disk is not the subject here, and many stores are made."""


@sizes("histories, first", (15, 1), (800, None), (8_000, None))
def test_a_vm_is_prepared_before_each_post_and_told_of_each_end(
    monkeypatch: pytest.MonkeyPatch, histories: int, first: int | None
) -> None:
    """Restarts, kills, other kinds, events that leave the VM and return, and POSTs that wait."""
    monkeypatch.setattr(ballast, "SIZE_BYTES", 1)
    logging.getLogger("bridge").setLevel(logging.ERROR)
    seed = random.randrange(10**9) if first is None else first
    posts = 0
    for number in range(seed, seed + histories):
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as root:
            try:
                with Bugs() as bugs:
                    bench = PreparingBench(Path(root), number)
                    bench.live(80)
                bugs.check()
            except Exception as error:
                error.add_note(f"seed {number}")
                raise
        posts += bench.posts
    assert posts > 0
