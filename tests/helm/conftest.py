"""What tests of the chart share."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory without a .env of somebody else's."""
    monkeypatch.chdir(tmp_path)
