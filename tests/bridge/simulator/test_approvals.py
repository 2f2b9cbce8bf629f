"""The simulator starts an event that is approved."""

import threading

import pytest
from support.imds.client import approve, ask

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import ResetFault
from bridge.simulator.simulator import Simulator
from bridge.simulator.timeline import SimulatedDocument


def started_simulator(**settings: float) -> tuple[Simulator, threading.Event]:
    """Return a simulator, and an event that is set once an event has Started in it."""
    started = threading.Event()

    def look(document: SimulatedDocument) -> None:
        if b'"Started"' in document.body:
            started.set()

    return Simulator(on_document=look, approval_delay=settings.get("delay", 0.01)), started


def test_an_approval_starts_the_event_a_little_later() -> None:
    """A POST is answered 200, and the event becomes Started in a later document."""
    simulator, started = started_simulator(delay=0.05)
    with simulator:
        event = simulator.announce(SimulatedEvent())
        reply = approve(simulator.url, event.event_id.lower())
        at_once = ask(simulator.url).json()["Events"][0]["EventStatus"]
        assert started.wait(5)
        later = ask(simulator.url).json()
    assert (reply.status, reply.body, at_once) == (200, b"", "Scheduled")
    assert (later["DocumentIncarnation"], later["Events"][0]["EventStatus"]) == (3, "Started")


def test_only_the_first_approval_has_effect() -> None:
    """Later POSTs for the event, before and after it is Started, are answered 200 and have no
    effect.
    """
    simulator, started = started_simulator()
    with simulator:
        event = simulator.announce(SimulatedEvent())
        statuses = [approve(simulator.url, event.event_id).status for _ in range(2)]
        assert started.wait(5)
        statuses.append(approve(simulator.url, event.event_id).status)
        effects = [approval.effective for approval in simulator.approvals]
    assert (statuses, effects) == ([200, 200, 200], [True, False, False])


def test_an_unknown_event_is_refused(imds_simulator: Simulator) -> None:
    """A POST with an EventId that is not in the document is answered 400, and starts none of its
    other events.
    """
    event = imds_simulator.announce(SimulatedEvent())
    reply = approve(imds_simulator.url, event.event_id, "00000000-0000-0000-0000-000000000000")
    assert reply.status == 400
    assert [(a.status, a.started) for a in imds_simulator.approvals] == [(400, ())]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"StartRequests":[]}', b'{"StartRequests":[{"EventId":1}]}'],
)
def test_a_body_that_cannot_be_read_is_refused(imds_simulator: Simulator, body: bytes) -> None:
    """A POST that is not a list of StartRequests is answered 400, and is kept in the list
    of POSTs.
    """
    reply = ask(imds_simulator.url, method="POST", body=body)
    assert (400, [body]) == (reply.status, [a.body for a in imds_simulator.approvals])


def test_a_post_needs_the_header_too(imds_simulator: Simulator) -> None:
    """A POST without `Metadata: true` is 400 and starts nothing."""
    event = imds_simulator.announce(SimulatedEvent())
    body = b'{"StartRequests":[{"EventId":"%s"}]}' % event.event_id.encode()
    reply = ask(imds_simulator.url, method="POST", headers={}, body=body)
    assert (reply.status, [a.effective for a in imds_simulator.approvals]) == (400, [False])


def test_an_oversized_post_is_refused(imds_simulator: Simulator) -> None:
    """A body of more than 64 KiB is answered 413 before it is read."""
    headers = {"Metadata": "true", "Content-Length": "65537"}
    reply = ask(imds_simulator.url, method="POST", headers=headers)
    assert reply.status == 413


def test_an_approval_may_work_and_its_answer_be_lost() -> None:
    """With `Reset(after_effect=True)` the event starts although the client saw no answer."""
    simulator, started = started_simulator()
    with simulator:
        event = simulator.announce(SimulatedEvent())
        simulator.fault(ResetFault(after_effect=True), at="start")
        with pytest.raises(ConnectionError):
            approve(simulator.url, event.event_id)
        assert started.wait(5)
        seen = [(a.status, a.effective) for a in simulator.approvals]
    assert seen == [(None, True)]


def test_a_hand_written_event_can_be_approved(imds_simulator: Simulator) -> None:
    """The first POST for a Scheduled event of a hand-written document has effect; the document
    stays unchanged.
    """
    document = {"DocumentIncarnation": 5, "Events": [{"EventId": "E", "EventStatus": "Scheduled"}]}
    imds_simulator.serve(document)
    statuses = [approve(imds_simulator.url, "e").status for _ in range(2)]
    assert statuses == [200, 200]
    assert [a.started for a in imds_simulator.approvals] == [("e",), ()]
    assert document == ask(imds_simulator.url).json()


def test_a_returned_event_can_be_approved_again() -> None:
    """An event that came back under its old EventId can be approved again."""
    simulator, started = started_simulator()
    with simulator:
        event = simulator.announce(SimulatedEvent())
        approve(simulator.url, event.event_id)
        assert started.wait(5)
        simulator.end_event(event.event_id)
        simulator.announce(event)
        approve(simulator.url, event.event_id)
        effects = [approval.effective for approval in simulator.approvals]
    assert effects == [True, True]
