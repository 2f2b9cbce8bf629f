"""Rules, commands, sinks and settings over time: no POST without a ground that holds when it goes
out, whatever the documents, the sinks, the settings and IMDS do meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.commands.approval_model import try_courses
from support.faults.oracle import Figures

Tell = Callable[[Figures], None]


def test_a_few_courses(tell: Tell) -> None:
    """Every POST has a rule or a signature that holds for the newest recorded state."""
    tell(try_courses(60, 25))


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_many_courses(tell: Tell) -> None:
    """The same for longer."""
    tell(try_courses(800, 30))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_most_courses(tell: Tell) -> None:
    """The same for so long that rare turns meet."""
    tell(try_courses(10_000, 50))
