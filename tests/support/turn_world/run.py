"""Runs one seed, and keeps its history."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.commands.model_bench import Bugs
from support.turn_world.chaos import Chaos
from support.turn_world.settling import settle
from support.turn_world.world import TurnWorld

_MEMORY: Final = Path("/dev/shm")
"""What is on disk is not the subject here."""


@dataclass(frozen=True)
class Result:
    """What a seed has come to."""

    history: str
    preparations: int
    requests: int
    error: Exception | None


def run(seed: int, steps: int = 80) -> Result:
    """Let so many things happen in the world of a seed, and let it settle."""
    memory = _MEMORY if _MEMORY.is_dir() else None
    error: Exception | None = None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        with TurnWorld(seed, Path(directory)) as world:
            try:
                with Bugs() as bugs:
                    Chaos(world).live(steps)
                    settle(world)
                bugs.check()
            except Exception as found:  # it is part of the result
                error = found
        oracle = world.oracle
        history = "\n".join(world.simulation.lines)
    return Result(history, oracle.preparations, oracle.requests, error)


def check(seed: int, steps: int = 80) -> Result:
    """Run a seed; raise its error with its history."""
    result = run(seed, steps)
    if result.error is not None:
        result.error.add_note(
            f"{result.history}\nagain: PYTHONPATH=.:tests "
            f"python -m support.turn_world {seed} {steps}"
        )
        raise result.error
    return result
