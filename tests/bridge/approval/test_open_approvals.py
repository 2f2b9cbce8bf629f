"""Open approvals: when IMDS is asked, again and again, and what becomes of each request."""

import itertools
from collections import Counter

import pytest
from support.commands.approval_bench import (
    ApprovalBench,
    approval_worker_of,
    fails,
    has_work,
    run_once,
    tell_poll,
)
from support.documents.documents import EVENT_ID, LATER, OTHER_ID

from bridge.approval.open_approvals import ENDS_AT_ONCE, MAX_RETRY_SECONDS
from bridge.config.approval import Rule
from sinks.base import CommandMessage

GOOD = [("accepted", None), ("posted", None), ("confirmed", None)]


@pytest.mark.parametrize(
    "reason",
    [
        "http_429",
        "http_500",
        "http_503",
        "http_404",
        "http_410",
        "http_401",
        "timeout",
        "connection",
        "refused",
        "unreachable",
    ],
)
def test_imds_is_asked_again(bench: ApprovalBench, reason: str) -> None:
    """A request whose failure may pass is repeated with growing pauses until IMDS accepts it."""
    bench.announce()
    bench.imds.failures = [fails(reason)] * 3
    bench.send(bench.approve())
    assert bench.story() == [("accepted", None)]
    for _ in range(8):
        bench.poll()
    assert bench.imds.posts == [EVENT_ID] * 4
    assert bench.story() == GOOD


def test_pauses_grow_to_a_limit_and_honour_what_imds_asks(bench: ApprovalBench) -> None:
    """The pauses are 1, 2, 4, 5, 5 seconds, or longer if IMDS asks for that."""
    bench.announce()
    bench.imds.failures = [fails("http_500")] * 6 + [fails("http_429", retry_after=9)]
    times: list[float] = []
    bench.send(bench.approve())
    for _ in range(90):
        before = len(bench.imds.posts)
        bench.poll(after=0.5)
        times += [bench.clock.monotonic()] * (len(bench.imds.posts) - before)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses == [2.0, 4.0, MAX_RETRY_SECONDS, MAX_RETRY_SECONDS, MAX_RETRY_SECONDS, 9.0]


FAILED, UNREACHABLE = ("failed", "imds_refused"), ("failed", "imds_unreachable")


@pytest.mark.parametrize(
    ("answers", "then", "end"),
    [
        # IMDS took it, its answer was lost, and the event starts, or is over.
        ("lost", "starts", GOOD[2]),
        ("lost http_400", "is gone", GOOD[2]),
        # An answer that was lost once is never taken for certainly in vain, whatever follows it.
        ("lost refused", "starts", GOOD[2]),
        ("refused lost", "starts", GOOD[2]),
        ("http_500 lost" + " http_500" * 9, "is gone", GOOD[2]),
        # Where the event still stands after a refusal, and is refused again, IMDS means it.
        ("lost http_400 http_400", "stays", FAILED),
        ("http_400", "stays", FAILED),
        ("http_405", "stays", FAILED),
        # An error of a server may have had its effect; that an event is gone does not show it.
        ("http_500 " * 9, "starts", GOOD[2]),
        ("http_500 " * 9, "is gone", FAILED),
        ("http_503 " * 9, "is gone", FAILED),
        # Where IMDS could not be reached for sure, a start is none of ours.
        ("refused " * 9, "starts", UNREACHABLE),
        # A change does not show whether the request was taken; one that was not sent was not.
        ("lost", "changes", UNREACHABLE),
        ("http_500", "changes", UNREACHABLE),
        ("refused", "changes", ("failed", "event_changed")),
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_the_end_of_a_post(
    bench: ApprovalBench, answers: str, then: str, end: tuple[str, str | None], *, restart: bool
) -> None:
    """Each approval has one end, which says no more than what is known."""
    bench.announce()
    bench.imds.starts = False
    bench.imds.failures = [
        bench.imds.lose_answer if each == "lost" else fails(each) for each in answers.split()
    ]
    bench.send(bench.approve())
    for _ in answers.split()[1:]:
        bench.poll(after=5)
    if restart:
        bench.restart()
    if then == "starts":
        bench.change(EventStatus="Started", NotBefore="")
    if then == "is gone":
        bench.vanish()
    if then == "changes":
        bench.change(NotBefore=LATER)
    bench.poll()
    assert bench.story() == [("accepted", None), end]


@pytest.mark.parametrize(("answer", "end"), [("http_500", FAILED), ("timeout", GOOD[2])])
@pytest.mark.parametrize("restart", [False, True])
def test_a_try_that_may_have_worked_is_followed_past_its_time(
    bench: ApprovalBench, answer: str, end: tuple[str, str | None], *, restart: bool
) -> None:
    """A request that may have worked is not repeated after the expiry, and its approval ends with
    the event.
    """
    bench.announce()
    bench.imds.starts = False
    bench.imds.failures = [fails(answer)]
    bench.send(bench.approve(exp=bench.seconds + 20))
    bench.clock.advance(20)
    if restart:
        bench.restart()
    bench.poll()
    bench.poll()
    assert (bench.imds.posts, bench.story()) == ([EVENT_ID], [("accepted", None)])
    bench.vanish()
    bench.poll()
    assert bench.story() == [("accepted", None), end]


def test_an_approval_of_an_earlier_version_is_not_posted(bench: ApprovalBench) -> None:
    """A command of 0.2.0, which kept no key and no expiry, fails unless a request may have
    worked.
    """
    bench.announce()
    bench.fail()
    bench.send(bench.approve())
    with bench.store.transaction() as connection:
        connection.execute("UPDATE approvals SET key = NULL, expires = NULL, asked = 'in vain'")
    bench.restart()
    bench.poll()
    assert (bench.imds.posts, bench.story()[1:]) == ([], [("failed", "not_allowed")])


def test_a_post_waits_for_the_next_good_poll(bench: ApprovalBench) -> None:
    """After a failed poll, no POST is sent before the next good one."""
    bench.announce()
    token = bench.approve()
    bench.fail()
    bench.send(token)
    bench.person()
    assert bench.imds.posts == []
    bench.change(Resources=["web_3", "web_4", "web_5", "web_6", "web_7"])
    bench.fail()
    bench.poll()
    assert bench.imds.posts == []
    ends = [(each["state"], each["reason"]) for each in bench.receipts()]
    assert ends.count(("failed", "event_changed")) == 2


def test_a_poll_that_hangs_makes_the_document_old(bench: ApprovalBench) -> None:
    """If the next poll is overdue, no POST is sent before it has succeeded."""
    bench.announce()
    token = bench.approve()
    bench.clock.advance(2.5)
    bench.send(token)
    assert bench.imds.posts == []
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]


def test_what_the_document_may_hide_is_not_posted(bench: ApprovalBench) -> None:
    """An event that is missing beside an entry without an EventId continues, and is not posted
    until a document shows it.
    """
    bench.announce()
    hidden = bench.imds.events_now.pop(EVENT_ID)
    bench.imds.events_now["odd"] = {"EventStatus": "Scheduled"}
    bench.poll()
    bench.send(bench.approve())
    assert (bench.imds.posts, bench.story()) == ([], [("accepted", None)])
    bench.imds.events_now = {EVENT_ID: hidden}
    bench.poll()
    assert bench.imds.posts == [EVENT_ID]


@pytest.mark.parametrize("restarts", [False, True])
def test_an_event_that_goes_on_without_this_vm_confirms_nothing(
    bench: ApprovalBench, *, restarts: bool
) -> None:
    """With SEB_SCOPE=self, an event that stops naming this VM ends here, and does not confirm its
    approval.
    """
    bench.scope_self = True
    bench.restart()
    bench.announce(resources=["web_3", "web_4"])
    bench.imds.starts = False
    bench.person()
    assert bench.story()[-1] == ("posted", None)
    bench.change(Resources=["web_4"])
    if restarts:
        assert bench.poller.run()
        bench.restart()
    bench.poll()
    assert bench.story()[-1] == ("failed", "event_changed")


def test_posted_is_not_confirmed_before_it_is_seen(bench: ApprovalBench) -> None:
    """Only the event's own status confirms an approval, because IMDS answers 200 to any request."""
    bench.announce()
    bench.imds.starts = False
    bench.send(bench.approve())
    bench.poll()
    bench.change(NotBefore="Mon, 02 Mar 2026 11:00:00 GMT")
    bench.poll()
    assert GOOD[:2] == bench.story()
    bench.vanish()
    bench.poll()
    assert bench.story() == GOOD


@pytest.mark.parametrize("approve", [False, True])
def test_an_approved_event_that_vanishes_need_not_be_cancelled(
    bench: ApprovalBench, *, approve: bool
) -> None:
    """An approved event that disappears ends as Unknown, because it may have started and ended
    between two polls.
    """
    bench.announce()
    if approve:
        bench.send(bench.approve())
    bench.vanish()
    bench.poll()
    status = bench.record()["data"]["event"]["eventStatus"]
    assert status == ("Unknown" if approve else "Canceled")


def test_without_a_good_poll_no_post_is_sent(bench: ApprovalBench) -> None:
    """While IMDS does not answer, a command waits, and the next poll decides about it."""
    bench.announce()
    token = bench.approve()
    bench.clock.advance(60)
    bench.send(token)
    assert (bench.imds.posts, bench.story()) == ([], [("accepted", None)])
    bench.poll()
    bench.poll()
    assert (bench.imds.posts, bench.story()) == ([EVENT_ID], GOOD)


def test_a_command_is_accepted_while_requests_hang(bench: ApprovalBench) -> None:
    """Between the POSTs of two rules a command is verified, because one step sends one request."""
    bench.decide_by(Rule(name="mine"))
    bench.imds.starts = False
    bench.imds.failures = [fails("timeout")] * 9
    bench.announce()
    bench.announce(OTHER_ID)
    bench.announce("E-3", event_type="Reboot", resources=["web_3", "web_4"])
    bench.clock.advance(9)
    bench.poller.run()
    bench.approvals.note_poll()
    del bench.imds.posts[:]
    assert bench.approvals.act_once()
    assert bench.imds.posts == [EVENT_ID]
    token = bench.approve(bench.record("E-3"), jti="one")
    bench.approvals.command(CommandMessage(token=token, channel="mqtt"))
    assert [each["state"] for each in bench.receipts() if each["jti"] == "one"] == ["accepted"]
    assert bench.imds.posts == [EVENT_ID]
    bench.go_on()
    assert bench.imds.posts == [EVENT_ID, OTHER_ID, "E-3"]


def test_a_request_that_always_fails_does_not_starve_another(bench: ApprovalBench) -> None:
    """The request that has been due for the longest time is sent next."""
    bench.imds.starts = False
    bench.announce()
    bench.announce(OTHER_ID)
    bench.imds.failures = [fails("timeout")] * 99
    for each in (EVENT_ID, OTHER_ID):
        bench.approvals.local(each, user="anna")
    for _ in range(20):
        bench.clock.advance(9)
        bench.poller.run()
        bench.approvals.note_poll()
        bench.approvals.act_once()
    assert Counter(bench.imds.posts) == {EVENT_ID: 10, OTHER_ID: 10}


def test_a_poll_counts_until_the_next_one_is_overdue(bench: ApprovalBench) -> None:
    """At any interval, a poll counts until the next one is overdue."""
    bench.interval = 600.0
    bench.restart()
    bench.announce()
    bench.clock.advance(599)
    bench.send(bench.approve())
    assert bench.imds.posts == [EVENT_ID]


def test_many_approvals_that_end_at_once_take_turns(bench: ApprovalBench) -> None:
    """While thousands of approvals of one event end, commands are accepted in between."""
    many = 3 * ENDS_AT_ONCE
    bench.imds.starts = False
    bench.decide_by(Rule(name="any"))
    bench.announce()
    for number in range(1, many):
        bench.change(DurationInSeconds=number)
        bench.poll()
    assert len(bench.imds.posts) == many
    bench.decide_by()
    bench.announce("E-2")
    worker = approval_worker_of(bench.approvals, bench.clock)
    bench.change(EventStatus="Started", NotBefore="")
    bench.clock.advance(1)
    assert bench.poller.run()
    tell_poll(worker, answered=True)
    token = bench.approve(bench.record("E-2"))
    taken: list[bool] = []
    assert worker.command(
        CommandMessage(token=token, channel="mqtt", on_settled=lambda: taken.append(True))
    )
    run_once(worker)
    assert taken == [True]
    assert bench.story().count(("confirmed", None)) == 2 * ENDS_AT_ONCE
    while has_work(worker):
        run_once(worker)
    assert bench.story().count(("confirmed", None)) == many
