"""A store, a bench of sinks and a whole bridge, each closed at the end of its test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.page.monitored_bridge import MonitoredBridge
from support.sinks.scripted_sink import DispatcherBench
from support.store_helpers import opened

from bridge.store.database import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A new store."""
    with opened(tmp_path) as made:
        yield made


@pytest.fixture
def bench(store: Store) -> Iterator[DispatcherBench]:
    """A bench with one sink, `ops`."""
    made = DispatcherBench(store, "ops")
    yield made
    made.finish(5)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[MonitoredBridge]:
    """A bridge that does not know the VM identity yet."""
    made = MonitoredBridge(tmp_path)
    yield made
    made.close()
