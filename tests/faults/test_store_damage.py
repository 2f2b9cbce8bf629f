"""A store whose file or log is damaged: it opens, or it is put aside, or the start says why not."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.faults.sizes import sizes
from support.faults.store_damage import BEHIND, DAMAGES, Found, Original, damage, drain


def verdict(original: Original, found: Found) -> str:
    """What became of it, in a word. Raises `AssertionError` for records that nobody committed."""
    for records in found.got.values():
        for record in records:
            assert record == original.records[record.sequence], "other bytes than were committed"
    if found.refused is not None:
        assert found.refused.startswith("SEB_STATE_DIR: ")
        return "refused"
    for sink in BEHIND:
        got = [record.sequence for record in found.got[sink]]
        assert got == sorted(set(got)), "out of order"
    return "reset" if found.resets else "dead" if found.dead else "whole"


def try_damages(home: Path, kind: str, *, log: bool, rounds: int, seed: int) -> str:
    """So many damages of a kind; what became of them, in a line."""
    draw, verdicts = random.Random(seed), Counter[str]()
    original = Original(home, killed=log)
    for number in range(rounds):
        directory = original.copy(home / "damaged")
        damage(directory, kind, draw, log=log)
        try:
            verdicts[verdict(original, drain(directory))] += 1
        except Exception as error:
            error.add_note(f"damage {number} of seed {seed}")
            raise
    case = f"{kind}, {'log' if log else 'file'}"
    ends = "  ".join(f"{word} {count}" for word, count in sorted(verdicts.items()))
    return f"faults: {case:<44}  rounds {rounds}  {ends}"


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("log", [False, True], ids=["file", "log"])
@sizes("rounds", 6, 150, 10_000)
def test_damage_anywhere(
    tmp_path: Path, tell: Callable[[str], None], rounds: int, kind: str, *, log: bool
) -> None:
    """Whatever is delivered has the bytes that were committed, and no start fails for ever."""
    tell(try_damages(tmp_path, kind, log=log, rounds=rounds, seed=rounds))
