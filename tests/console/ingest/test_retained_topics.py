"""Which retained messages of VMs have come, and which are asked for."""

from __future__ import annotations

import pytest

from console.ingest import retained_topics
from console.ingest.retained_topics import RetainedTopics

VM = "seb/v1/eu/vm/id-1"
BOTH = [f"{VM}/state", f"{VM}/status"]


@pytest.fixture
def topics() -> RetainedTopics:
    """Nothing has come yet."""
    return RetainedTopics()


def test_what_a_heard_vm_has_not_sent_is_asked_for(topics: RetainedTopics) -> None:
    """A VM that was heard for a while has a state and a status, which may have been dropped."""
    topics.note(f"{VM}/event", 100)
    assert topics.next_to_ask(10, 104) == []
    topics.note(f"{VM}/event", 104)
    assert topics.next_to_ask(10, 105) == BOTH
    assert topics.next_to_ask(10, 200) == []


def test_a_vm_that_retains_nothing_is_asked_three_times(topics: RetainedTopics) -> None:
    """The broker may drop an answer; a bridge may retain nothing at all."""
    found = []
    for now in range(0, 600, 5):
        topics.note(f"{VM}/event", now)
        found += topics.next_to_ask(10, now)
    assert found == [*BOTH, *BOTH, *BOTH]


def test_what_has_come_is_not_asked_for(topics: RetainedTopics) -> None:
    """Whichever of the two came, before or after a record, is known."""
    topics.note(BOTH[0], 99)
    topics.note(f"{VM}/event", 100)
    assert topics.next_to_ask(10, 105) == BOTH[1:]
    topics.note(BOTH[1], 106)
    topics.forget()
    topics.note(f"{VM}/event", 107)
    topics.note(BOTH[1], 108)
    assert topics.next_to_ask(10, 112) == BOTH[:1]


def test_a_vm_of_which_records_are_missing_is_asked_first(topics: RetainedTopics) -> None:
    """It is asked again, although it has sent both before, and before VMs that are only new."""
    for topic in (*BOTH, f"{VM}/event"):
        topics.note(topic, 100)
    topics.note("seb/v1/eu/vm/id-2/event", 100)
    topics.want(["id-1", "id-3"])
    assert topics.next_to_ask(3, 105) == [*BOTH, "seb/v1/eu/vm/id-2/state"]
    assert topics.next_to_ask(3, 105) == ["seb/v1/eu/vm/id-2/status"]


def test_strangers_do_not_fill_the_memory(
    topics: RetainedTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topics of so many VMs are remembered, and of no more until the next connection."""
    monkeypatch.setattr(retained_topics, "MAX_VMS", 1)
    topics.note(f"{VM}/event", 100)
    topics.note("seb/v1/eu/vm/id-2/event", 100)
    assert topics.next_to_ask(10, 105) == BOTH
    topics.forget()
    topics.note("seb/v1/eu/vm/id-2/event", 200)
    assert topics.next_to_ask(10, 205) == ["seb/v1/eu/vm/id-2/state", "seb/v1/eu/vm/id-2/status"]
