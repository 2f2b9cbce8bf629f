"""A store, a bench of sinks and a whole bridge, each closed at the end of its test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.page.front_stage import Stage
from support.sinks.scripted import Bench
from support.store_helpers import opened

from bridge.store.database import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A new store."""
    with opened(tmp_path) as made:
        yield made


@pytest.fixture
def bench(store: Store) -> Iterator[Bench]:
    """A bench with one sink, `ops`."""
    made = Bench(store, "ops")
    yield made
    made.finish(5)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A bridge that does not know the VM identity yet."""
    made = Stage(tmp_path)
    yield made
    made.close()
