"""A bridge with approvals, for the tests of this package."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.approval_bench import (
    ApprovalBench,
)

from bridge.approval import refused_commands

FEW = 5
"""Refusals a minute; the bridge's own limit would only take longer."""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApprovalBench]:
    """A bridge that has seen nothing yet, and no rule."""
    monkeypatch.setattr(refused_commands, "REFUSALS_A_MINUTE", FEW)
    made = ApprovalBench(tmp_path)
    yield made
    made.close()
