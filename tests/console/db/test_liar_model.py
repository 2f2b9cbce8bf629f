"""One liar among honest VMs: short histories; `tests/faults` has the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.console.lying import lie

from console.config.settings import Settings
from console.db.opening import Database, database_url


@pytest.mark.parametrize("seed", range(4))
def test_one_liar_harms_no_honest_event(tmp_path: Path, seed: int) -> None:
    """Whatever it sends, in any order: nothing honest is hidden, ended, blocked or retired."""
    database = Database(database_url(Settings(state_dir=tmp_path)))
    database.open()
    try:
        lie(database, seed, 30)
    finally:
        database.close()
