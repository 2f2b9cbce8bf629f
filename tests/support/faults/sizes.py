"""How large a fault case is: by default, in `make faults`, and in `make faults-long`."""

import pytest


def sizes(names: str, default: object, faults: object, slow: object) -> pytest.MarkDecorator:
    """Run the test in three sizes; `default` may be None where the smallest is not quick enough."""
    params: list[tuple[object, str, list[pytest.MarkDecorator]]] = [
        (default, "quick", []),
        (faults, "faults", [pytest.mark.faults, pytest.mark.timeout(600)]),
        (slow, "slow", [pytest.mark.slow, pytest.mark.timeout(4000)]),
    ]
    return pytest.mark.parametrize(
        names,
        [
            pytest.param(*(size if isinstance(size, tuple) else (size,)), id=name, marks=marks)
            for size, name, marks in params
            if size is not None
        ],
    )
