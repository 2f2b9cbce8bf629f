"""Over any history: every change once, one id one fact, and every `scheduled` has its end."""

import os
from collections.abc import Callable

from support.faults.oracle import Figures
from support.faults.sizes import sizes
from support.records.model import try_histories

Tell = Callable[[Figures], None]


@sizes("examples, steps", (40, 10), (600, 20), (6_000, 20))
def test_any_history(tell: Tell, examples: int, steps: int) -> None:
    """Whatever happens to documents, store and settings, what sinks have is what was so.

    `SEB_TEST_HISTORIES` and `SEB_TEST_SEED` set another number of histories, and the seed.
    """
    chosen = int(os.environ.get("SEB_TEST_HISTORIES", examples))
    number = os.environ.get("SEB_TEST_SEED")
    tell(try_histories(chosen, steps, number=None if number is None else int(number)))
