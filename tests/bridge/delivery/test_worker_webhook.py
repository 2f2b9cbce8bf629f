"""A worker and a real webhook whose settings are wrong: nothing is parked, and it heals itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sinks.http_server import HttpServer
from support.sinks.scripted import Bench
from support.sinks.webhook import KEY, OTHER_KEY, HastyWebhookSink, settings
from support.store_helpers import draft, opened

from bridge.config.load import SinkSpec


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A receiver that answers 204 unless told otherwise."""
    with HttpServer() as running:
        yield running


@pytest.mark.parametrize("status", [401, 403, 404, 405, 407])
def test_a_backlog_waits_for_the_right_setting(
    tmp_path: Path, server: HttpServer, status: int
) -> None:
    """However often it is refused; once the key in its file is right, all goes out in order."""
    secret = tmp_path / "secret"
    secret.write_text(OTHER_KEY)
    told = settings(f"{server.origin}/hook", secret_file=secret)
    with opened(tmp_path / "state") as store:
        bench = Bench(store, "ops")
        bench.specs = [SinkSpec(name="ops", sink_class=HastyWebhookSink, settings=told)]
        bench.commit(*[draft(n) for n in range(1, 4)])
        server.answer(status=status, times=7)
        bench.start()
        for failures in range(1, 8):
            health = bench.wait_for_failure("ops", failures)
            assert health.state == "failing"
            assert f"answered {status}" in str(health.reason)
            assert "; see " in str(health.reason)
            if failures == 7:
                secret.write_text(KEY)
            bench.advance(61)
        bench.scripts["ops"].wait_for(lambda: health.delivered == 3 and health.state == "ok")
        assert (bench.outbox.dead.count("ops"), health.parked) == (0, 0)
        bench.finish()
    bodies = [request.body for request in server.requests()]
    assert len(bodies) == 7 + 3
    assert len(set(bodies[:8])) == 1
    assert len(set(bodies)) == 3
