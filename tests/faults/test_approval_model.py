"""Over any course of documents, sinks, settings and IMDS, every POST has a ground that holds."""

from collections.abc import Callable

from support.commands.approval_model import try_courses
from support.faults.oracle import Figures
from support.faults.sizes import sizes

Tell = Callable[[Figures], None]


@sizes("examples, steps", (60, 25), (800, 30), (10_000, 50))
def test_any_course(tell: Tell, examples: int, steps: int) -> None:
    """Every POST has a rule or a signature that holds for the newest recorded state."""
    tell(try_courses(examples, steps))
