"""promtool for the tests of rules and dashboard."""

import pytest
from support.monitoring import promtool


@pytest.fixture
def tool() -> None:
    """The test needs promtool, and is skipped where there is none."""
    if promtool.executable() is None:
        pytest.skip("promtool is not installed; Debian's package prometheus has it")
