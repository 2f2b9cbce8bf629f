"""The desk: what a command may ask of the outbox, with a running bridge and without."""

import pytest
from support.sinks.scripted import Bench
from support.store_helpers import draft, recipients

from bridge.api.control import ControlError
from bridge.api.control_requests import ControlRequests
from sinks.base import SinkPaused


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
