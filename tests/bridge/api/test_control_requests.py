"""The requests of commands: what they can ask about the outbox, with a running bridge and
without.
"""

import pytest
from support.sinks.scripted_sink import DispatcherBench
from support.store_helpers import draft, recipients

from bridge.api.control import ControlError
from bridge.api.control_requests import ControlRequests
from sinks.base import SinkPaused


def test_the_list_of_a_running_bridge(bench: DispatcherBench) -> None:
    """The list has each sink's state and its reason, and sinks that are not configured any more."""
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


def test_the_list_says_why_the_bridge_cannot_commit(bench: DispatcherBench) -> None:
    """The list has the trouble of the store as it is now, such as a full disk, not only that of the
    last poll.
    """
    requests = ControlRequests(bench.outbox, store_trouble=lambda: "it is full")
    assert requests.answer({"ask": "outbox.list"})["trouble"] == "it is full"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, "does not know None"),
        ({"ask": "outbox.eat"}, "does not know 'outbox.eat'"),
        ({"ask": "outbox.retry"}, "there is no sink None; the sinks are: ops"),
        ({"ask": "outbox.drop", "sink": "nope"}, "there is no sink nope"),
        ({"ask": "outbox.drop", "sink": "ops", "sequences": "all"}, "a list of numbers"),
        ({"ask": "outbox.drop", "sink": "ops", "sequences": [True]}, "a list of numbers"),
    ],
)
def test_a_request_that_cannot_be_carried_out(
    bench: DispatcherBench, request_: dict[str, object], expected: str
) -> None:
    """A request that cannot be carried out changes nothing, and its message says what to do."""
    with pytest.raises(ControlError, match=expected):
        ControlRequests(bench.outbox).answer(request_)
