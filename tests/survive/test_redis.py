"""What only Redis has: a Sentinel that accepts a failover and carries it out later."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.survive.clients import load
from tests.survive.cluster import wait_for
from tests.survive.services.redis import Redis
from tests.survive.test_recipes import DISTRUST_SECONDS, STILL_SECONDS, RecipeVm

pytestmark = [pytest.mark.survive, pytest.mark.timeout(600)]


@pytest.fixture
def redis() -> Iterator[Redis]:
    """A whole cluster."""
    with Redis() as running:
        wait_for(running.is_whole, what="a whole cluster")
        yield running


def test_a_failover_that_would_come_late(redis: Redis, tmp_path: Path) -> None:
    """If Sentinel stands still when it is asked, the failover does not come while writes go on."""
    master = RecipeVm(redis, redis.leader(), tmp_path)
    sentinel = redis.sentinel_pid(master.number)
    goes_on = f"(sleep {STILL_SECONDS}; kill -CONT {sentinel}) >/dev/null 2>&1 &"
    still = f"kill -STOP {sentinel}; {goes_on}"
    master.wrap("redis-cli", f'case "$*" in *"sentinel failover"*) {still} ;; esac\n')
    with load(redis.client()) as found:
        prepared = master.prepare()
        assert prepared.code == 75, prepared
        time.sleep(DISTRUST_SECONDS)
        assert redis.leader() == master.number
        master.recover_until_done()
    assert found["lost"] == 0, found
