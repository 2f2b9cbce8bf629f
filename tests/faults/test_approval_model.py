"""Over any course of documents, sinks, settings, keys, polls and disks, approval keeps its word."""

import os
from collections.abc import Callable

import pytest
from support.commands.approval_model import Course, try_courses
from support.faults.oracle import Figures
from support.faults.sizes import sizes

Tell = Callable[[Figures], None]
STEPS = 100
"""Of one course."""
SEED = "SEB_TEST_SEED"
"""The variable with the seed of the long courses; without it they are others each time."""


@sizes("courses, seed", (12, "1"), (1_000, None), (10_000, None))
def test_any_course(tell: Tell, courses: int, seed: str | None) -> None:
    """Every POST is allowed at its moment, no command starves, each has its end, ids are facts'."""
    tell(try_courses(seed or os.environ.get(SEED) or os.urandom(4).hex(), courses, STEPS))


def test_the_onlooker_ends_the_course(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says of a POST is said in the bridge's own call, which catches every error."""

    def judge(course: Course, event_id: str) -> None:
        raise AssertionError(f"POST for {event_id}")

    monkeypatch.setattr(Course, "judge", judge)
    with pytest.raises(AssertionError, match="POST for E-"):
        try_courses("1", 12, STEPS)
