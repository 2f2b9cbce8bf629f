"""Commands that expire before IMDS was asked, and clocks that are set."""

import pytest
from support.commands.approval_bench import (
    ApprovalBench,
    fails,
)
from support.documents.documents import EVENT_ID


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("answers", ["", "refused", "refused http_404"])
def test_an_expired_command_is_not_posted(
    bench: ApprovalBench, answers: str, *, restart: bool
) -> None:
    """An expired command fails if no request can have worked: after failed polls, failed requests,
    and a restart.
    """
    bench.announce()
    bench.imds.failures = [fails(each) for each in answers.split()]
    if not answers:
        bench.fail()
    bench.send(bench.approve(exp=bench.seconds + 20))
    for _ in answers.split()[1:]:
        bench.poll(after=2)
    posts = list(bench.imds.posts)
    bench.clock.advance(20)
    if restart:
        bench.restart()
    bench.poll()
    assert bench.imds.posts == posts == [EVENT_ID] * len(answers.split())
    assert bench.story() == [("accepted", None), ("failed", "expired")]


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_is_set_back_gives_a_command_no_more_time(
    bench: ApprovalBench, *, restart: bool
) -> None:
    """A clock that is set back does not extend a command's life, also over a restart."""
    bench.announce()
    bench.fail()
    bench.send(bench.approve(exp=bench.seconds + 20))
    bench.clock.jump(-3600)
    bench.clock.suspend(10)
    bench.fail()
    if restart:
        bench.restart()
    bench.fail()
    bench.clock.advance(10)
    bench.poll()
    assert bench.imds.posts == []
    assert bench.story() == [("accepted", None), ("failed", "expired")]


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_is_set_back_makes_no_expired_command_valid(
    bench: ApprovalBench, *, restart: bool
) -> None:
    """A command that comes after its end is refused although the clock was set back meanwhile; one
    that is signed with more time than that is carried out.
    """
    bench.announce()
    late = bench.approve(jti="late", exp=bench.seconds + 15)
    bench.poll(after=26)
    bench.clock.jump(-20)
    if restart:
        bench.restart()
        bench.poll()
    bench.send(late)
    assert (bench.imds.posts, bench.story()) == ([], [("rejected", "expired")])
    bench.send(bench.approve(jti="new", exp=bench.seconds + 60))
    assert bench.imds.posts == [EVENT_ID]


def test_a_boot_that_leaves_the_clock_behind_gives_a_command_no_more_time(
    bench: ApprovalBench,
) -> None:
    """After a boot with the clock behind, the time until the last good poll counts as passed."""
    bench.announce()
    bench.imds.failures = [fails("refused")] * 9
    bench.send(bench.approve(exp=bench.seconds + 300))
    bench.poll(after=250)
    posts = list(bench.imds.posts)
    bench.close()
    bench.clock.boot()
    bench.clock.jump(-240)
    bench.begin()
    bench.fail(after=49)
    assert bench.story() == [("accepted", None)]
    bench.poll(after=1)
    assert bench.imds.posts == posts
    assert bench.story() == [("accepted", None), ("failed", "expired")]


def test_a_command_that_expires_while_its_post_connects_is_not_posted(
    bench: ApprovalBench,
) -> None:
    """The expiry is checked again once there is a connection, which may take seconds."""
    bench.announce()
    bench.imds.connecting = lambda: bench.clock.advance(20)
    bench.send(bench.approve(exp=bench.seconds + 20))
    bench.poll()
    assert bench.imds.posts == []
    assert bench.story() == [("accepted", None), ("failed", "expired")]


def test_a_vm_that_is_brought_back_while_a_post_connects_is_not_started(
    bench: ApprovalBench,
) -> None:
    """The preparation is checked again once there is a connection, which may take seconds."""
    bench.announce()
    preparation = ["prepared"]
    bench.current.preparation = lambda _: preparation[-1]
    bench.imds.connecting = lambda: preparation.append("none")
    bench.send(bench.approve())
    assert bench.imds.posts == []
    assert bench.story() == [("accepted", None)]


def test_a_command_expires_while_imds_does_not_answer(bench: ApprovalBench) -> None:
    """A command fails at its expiry although IMDS does not answer."""
    bench.announce()
    bench.fail()
    bench.send(bench.approve(exp=bench.seconds + 20))
    bench.fail(after=19)
    assert bench.story() == [("accepted", None)]
    bench.fail()
    assert bench.story() == [("accepted", None), ("failed", "expired")]
