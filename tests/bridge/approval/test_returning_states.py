"""Approvals of an event that comes back, or of one of its states that does."""

import pytest
from support.commands.approval_bench import (
    ApprovalBench,
    fails,
)
from support.documents.documents import EVENT_ID, LATER, OTHER_ID, entry

from bridge.config.approval import Rule


@pytest.mark.parametrize("restart", [False, True])
def test_a_rule_decides_about_what_is_planned_again_after_its_post(
    bench: ApprovalBench, *, restart: bool
) -> None:
    """If IMDS accepts a POST and starts nothing, the rule approves the next state of the event
    once.
    """
    bench.decide_by(Rule(name="any"))
    bench.imds.starts = False
    bench.announce()
    bench.change(NotBefore=LATER)
    if restart:
        bench.restart()
    bench.poll()
    bench.poll()
    assert len(bench.imds.posts) == 2
    assert bench.story() == [("accepted", None), ("posted", None)] * 2
    bench.change(EventStatus="Started", NotBefore="")
    bench.poll()
    assert bench.story()[4:] == [("confirmed", None)] * 2


@pytest.mark.parametrize("restarts", ["never", "while it is changed", "before approval looks"])
def test_a_rule_decides_about_a_state_that_comes_back(
    bench: ApprovalBench, *, restarts: str
) -> None:
    """If IMDS accepts a POST and starts nothing, the rule approves the same state again after it
    has changed and returned.
    """
    bench.decide_by(Rule(name="any"))
    bench.imds.starts = False
    before = bench.announce()["data"]["event"]["durationInSeconds"]
    bench.change(DurationInSeconds=before + 1)
    bench.poll()
    if restarts == "while it is changed":
        bench.restart()
    bench.change(DurationInSeconds=before)
    if restarts == "before approval looks":
        bench.clock.advance(1)
        assert bench.poller.run()
        bench.restart()
    bench.poll()
    bench.poll()
    assert len(bench.imds.posts) == 3


def test_an_approval_says_nothing_about_the_end_of_what_returned(bench: ApprovalBench) -> None:
    """An approved event that ended and returned ends as Canceled if Azure cancels it."""
    bench.announce()
    bench.send(bench.approve())
    bench.poll()
    bench.vanish()
    bench.poll()
    bench.announce()
    bench.vanish()
    bench.poll()
    assert bench.record()["data"]["event"]["eventStatus"] == "Canceled"


def test_a_rule_decides_again_about_a_state_that_comes_back(bench: ApprovalBench) -> None:
    """A rule approves a state again that came back, because its first approval started nothing."""
    bench.decide_by(Rule(name="any"))
    bench.imds.starts = False
    before = bench.announce()["data"]["raw"]["NotBefore"]
    for moment in (LATER, before):
        bench.change(NotBefore=moment)
        bench.poll()
    bench.poll()
    assert len(bench.imds.posts) == 3


def test_an_event_that_returned_is_not_started_by_an_approval_from_before(
    bench: ApprovalBench,
) -> None:
    """The bridge was killed while a POST hung, and the event had ended and returned meanwhile."""
    bench.announce()
    bench.imds.starts = False
    bench.imds.failures = [fails("timeout")]
    bench.send(bench.approve())
    bench.vanish()
    assert bench.poller.run()
    bench.imds.events_now[EVENT_ID] = entry(EVENT_ID)
    bench.clock.advance(1)
    assert bench.poller.run()
    posts = list(bench.imds.posts)
    bench.restart()
    bench.poll(after=9)
    assert bench.imds.posts == posts
    assert bench.story() == [("accepted", None), ("confirmed", None)]


def test_an_event_that_ended_and_returned_during_a_post_is_a_new_one(bench: ApprovalBench) -> None:
    """A POST for an event that ended and returned does not keep a rule from approving it again."""
    bench.decide_by(Rule(name="mine"))
    bench.imds.starts = False
    bench.announce()

    def slow(event_id: str) -> None:
        told = bench.imds.events_now.pop(EVENT_ID)
        bench.poller.run()
        bench.imds.events_now[EVENT_ID] = told
        bench.clock.advance(1)
        bench.poller.run()

    bench.imds.failures = [slow]
    bench.announce(OTHER_ID)
    assert bench.imds.posts == [EVENT_ID, OTHER_ID]
    bench.poll()
    assert bench.imds.posts == [EVENT_ID, OTHER_ID, EVENT_ID]
    about = [each["state"] for each in bench.receipts() if each["evt"] == EVENT_ID]
    assert about == ["accepted", "posted", "confirmed", "accepted", "posted"]
