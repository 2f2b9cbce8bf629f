"""Over any history of real bridges and consoles, no more of a group are away by our doing than it
allows, and everything comes to its end.
"""

import random

import pytest
from support.turn_world.run import check, run

FIXED = (1, 2, 1000, 1001, 1002, 1003, 1004, 1005)
RANDOM = 2


def test_a_short_history_comes_through() -> None:
    """VMs prepare one after the other, and Azure is told."""
    result = check(1, steps=4)
    assert result.preparations
    assert result.requests


@pytest.mark.faults
def test_a_seed_gives_the_same_history_each_time() -> None:
    """A history that has failed can be looked at again."""
    assert run(1, steps=20).history == run(1, steps=20).history


@pytest.mark.faults
@pytest.mark.parametrize("seed", FIXED)
def test_the_budget_holds_over_a_history(seed: int) -> None:
    """Crashes, cuts, lost stores, late and lost messages, changed events, and persons."""
    check(seed)


@pytest.mark.faults
@pytest.mark.parametrize("number", range(RANDOM))
def test_the_budget_holds_over_another_history(number: int) -> None:
    """As above, with a seed of its own for each run, which a failure prints."""
    check(random.randrange(10**9))


@pytest.mark.slow
@pytest.mark.timeout(4000)
def test_the_budget_holds_over_many_histories() -> None:
    """As above, for a long time."""
    for seed in range(1000, 1300):
        check(seed)
