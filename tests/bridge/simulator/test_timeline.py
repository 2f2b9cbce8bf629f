"""When the simulator makes a new document, and what it remembers of each."""

from datetime import UTC, datetime, timedelta

import pytest
from support.documents.documents import FakeClock
from support.imds.client import ask

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from bridge.simulator.timeline import UnknownEventError

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def incarnations(simulator: Simulator) -> list[int]:
    """Return the incarnation of every document so far."""
    return [document.json()["DocumentIncarnation"] for document in simulator.history]


def test_what_changes_nothing_makes_no_document() -> None:
    """A second start of an event, or a move by milliseconds, makes no new document and no new
    number.
    """
    simulator = Simulator()
    event = simulator.announce(SimulatedEvent(not_before=NOON))
    simulator.move(event.event_id, NOON + timedelta(milliseconds=1))
    simulator.start_event(event.event_id)
    simulator.start_event(event.event_id)
    assert incarnations(simulator) == [1, 2, 3]


def test_the_history_tells_what_was_served_and_when() -> None:
    """The history has the times of each document, how many GETs got it, and when the
    first one did.
    """
    clock = FakeClock(NOON)
    began = clock.monotonic()
    with Simulator(clock=clock) as simulator:
        simulator.announce(SimulatedEvent())
        clock.advance(10)
        body = ask(simulator.url).body
        clock.advance(10)
        ask(simulator.url)
        ask(simulator.url, "/metadata/scheduledevents?api-version=bad")
        never, served = simulator.history
        gets = simulator.gets
    assert (never.time, never.wall, never.first_served, never.gets) == (began, NOON, None, 0)
    assert (body, began + 10, 2) == (served.body, served.first_served, served.gets)
    assert gets == 3


def test_a_get_in_an_older_version_serves_the_same_document(imds_simulator: Simulator) -> None:
    """A GET in an older version counts for the same document; the history has the newest version's
    body.
    """
    imds_simulator.announce(SimulatedEvent())
    ask(imds_simulator.url, "/metadata/scheduledevents?api-version=2017-08-01")
    document = imds_simulator.history[-1]
    assert (document.gets, b"DurationInSeconds" in document.body) == (1, True)


def test_waiting_ends_when_the_document_is_served(imds_simulator: Simulator) -> None:
    """`wait_until_served` and `wait_for_gets` return whether that happened in time."""
    before = (
        imds_simulator.wait_until_served(timeout=0.01),
        imds_simulator.wait_for_gets(1, timeout=0.01),
    )
    ask(imds_simulator.url)
    after = imds_simulator.wait_until_served(), imds_simulator.wait_for_gets(1)
    assert (before, after) == ((False, False), (True, True))


@pytest.mark.parametrize("edit", ["start_event", "end_event"])
def test_an_unknown_event_is_an_error(edit: str) -> None:
    """A change of an event that is not there raises, and changes nothing."""
    simulator = Simulator()
    simulator.serve(b"[]")
    with pytest.raises(UnknownEventError, match="no event nope"):
        getattr(simulator, edit)("nope")
    assert simulator.history[-1].body == b"[]"


def test_one_event_id_is_there_once() -> None:
    """A second event with the same EventId, in any case, is refused."""
    simulator = Simulator()
    simulator.announce(SimulatedEvent(event_id="ABC"))
    with pytest.raises(ValueError, match="already"):
        simulator.announce(SimulatedEvent(event_id="abc"))
