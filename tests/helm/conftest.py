"""What the tests of the chart share: they need `helm`."""

from __future__ import annotations

import pytest
from helm_chart import helm_path


@pytest.fixture(autouse=True)
def _helm() -> None:
    """Skip where `helm` is missing, and say so."""
    if helm_path() is None:
        pytest.skip("helm is neither on PATH nor where `go install` puts it")
