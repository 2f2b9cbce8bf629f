"""The desk: what a command may ask of the outbox, with a running bridge and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sinks.scripted import Bench
from support.store_helpers import NOW, draft, opened, recipients

from bridge.api.control import ControlError, ControlServer, ask
from bridge.api.control_requests import ControlRequests
from sinks.base import SinkPaused, SinkRejected


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench with one sink."""
    with opened(tmp_path) as store:
        made = Bench(store, "ops")
        yield made
        made.finish(5)


def test_the_list_of_a_store_at_rest(bench: Bench) -> None:
    """Each sink's backlog and dead records; no state, for nothing runs."""
    bench.commit(draft(1), draft(2))
    bench.outbox.park("ops", 1, reason="no", attempts=2, now=NOW)
    shown = ControlRequests(bench.outbox).answer({"ask": "outbox.list"})
    (sink,), (dead,) = shown["sinks"], shown["dead"]
    assert {name: value for name, value in sink.items() if value is not None} == {
        "name": "ops",
        "kind": "test",
        "configured": True,
        "backlog": 1,
        "oldestPendingAt": "2026-03-01T12:00:00.000Z",
        "dead": 1,
    }
    assert (dead["sink"], dead["sequence"], dead["reason"], dead["attempts"]) == ("ops", 1, "no", 2)
    assert json.loads(json.dumps(shown)) == shown


def test_the_list_of_a_running_bridge(bench: Bench) -> None:
    """The state of each sink and why; a sink that is gone is shown too."""
    bench.scripts["ops"].on_deliver = [SinkPaused("gone")]
    bench.outbox.register(recipients("old", "ops"))
    bench.commit(draft(1))
    bench.start()
    bench.wait_for_failure("ops")
    old, ops = ControlRequests(bench.outbox, bench.dispatcher).answer({"ask": "outbox.list"})[
        "sinks"
    ]
    assert (old["name"], old["configured"], old["state"]) == ("old", False, None)
    assert (ops["configured"], ops["state"], ops["reason"]) == (True, "paused", "gone")


def test_retry_wakes_the_sink(bench: Bench) -> None:
    """A dead record goes out at once, although the sink rests."""
    ops = bench.scripts["ops"]
    ops.on_deliver = [SinkRejected("no"), SinkPaused("gone")]
    bench.commit(draft(1))
    bench.start()
    bench.wait_for_failure("ops")
    answer = ControlRequests(bench.outbox, bench.dispatcher).answer(
        {"ask": "outbox.retry", "sink": "ops"}
    )
    ops.wait_for(lambda: 1 in ops.sequences())
    assert answer == {"records": 1, "resumed": True}
    ops.wait_for(lambda: bench.outbox.dead.count("ops") == 0)


def test_drop_forgets_what_is_named(bench: Bench) -> None:
    """All of the sink's, or those of a list."""
    bench.commit(draft(1), draft(2), draft(3))
    for sequence in (1, 2, 3):
        bench.outbox.park("ops", sequence, reason="no", attempts=1, now=NOW)
    desk, request = ControlRequests(bench.outbox), {"ask": "outbox.drop", "sink": "ops"}
    assert desk.answer({**request, "sequences": [2, 7]}) == {"records": 1}
    assert desk.answer({**request, "sequences": None}) == {"records": 2}


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({}, "does not know None"),
        ({"ask": "outbox.eat"}, "does not know 'outbox.eat'"),
        ({"ask": "outbox.retry"}, "there is no sink None; the sinks are: ops"),
        ({"ask": "outbox.drop", "sink": "nope"}, "there is no sink nope"),
        ({"ask": "outbox.drop", "sink": "ops", "sequences": "all"}, "a list of numbers"),
        ({"ask": "outbox.drop", "sink": "ops", "sequences": [True]}, "a list of numbers"),
    ],
)
def test_what_cannot_be_done_is_said(bench: Bench, request_: dict[str, object], said: str) -> None:
    """Nothing is changed, and the message helps."""
    with pytest.raises(ControlError, match=said):
        ControlRequests(bench.outbox).answer(request_)


def test_the_desk_answers_through_the_channel(bench: Bench, tmp_path: Path) -> None:
    """What a command on this machine gets is what the desk says."""
    bench.commit(draft(1))
    server = ControlServer(tmp_path, ControlRequests(bench.outbox).answer)
    shown = ask(tmp_path, {"ask": "outbox.list"})
    server.close()
    assert ControlRequests(bench.outbox).answer({"ask": "outbox.list"}) == shown
