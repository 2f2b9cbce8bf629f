"""The times during which IMDS was not polled."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.documents.documents import NOW, FakeClock

from bridge.clock import uptime
from bridge.events.gaps import GapTracker, PollGap

FIRST = PollGap(
    seconds=None,
    since=None,
    is_long=False,
    is_continuous=False,
    reason="restart",
    restarted=False,
    pause_seconds=0.0,
)


def tracker(
    clock: FakeClock,
    *,
    interval: float = 1.0,
    ago: float | None = None,
    rebooted: bool | None = False,
) -> GapTracker:
    """Return the tracker of a run that begins so many seconds after the last poll of the run
    before.
    """
    polled_at = None if ago is None else clock.now() - timedelta(seconds=ago)
    return GapTracker(clock, interval=interval, polled_at=polled_at, rebooted=rebooted)


def poll(
    gaps: GapTracker, clock: FakeClock, *, answer: float = 0.0, commit: float = 0.0
) -> PollGap:
    """Make a good poll, whose answer and whose commit take so many seconds; return its gap."""
    gaps.begin_poll()
    clock.advance(answer)
    gap = gaps.gap(clock.now())
    clock.advance(commit)
    gaps.end_poll(clock.now())
    return gap


def test_the_first_look_ever_ends_no_gap() -> None:
    """The first poll of a new bridge ends no gap, and cannot tell how an event ended."""
    clock = FakeClock()
    assert poll(tracker(clock, rebooted=None), clock) == FIRST


def test_looks_follow_each_other() -> None:
    """A second between two polls is no long gap."""
    clock = FakeClock()
    gaps = tracker(clock)
    poll(gaps, clock)
    clock.advance(1.0)
    expected = replace(FIRST, seconds=1.0, since=NOW, is_continuous=True, reason="imds")
    assert poll(gaps, clock) == expected


@pytest.mark.parametrize(
    ("interval", "seconds", "is_long", "is_continuous"),
    [
        (1.0, 5.0, False, True),
        (1.0, 5.1, False, False),
        (1.0, 10.0, False, False),
        (1.0, 10.1, True, False),
        (60.0, 180.0, False, True),
        (60.0, 180.1, True, False),
    ],
)
def test_a_gap_is_long_by_the_clock_and_by_the_interval(
    interval: float, seconds: float, is_long: bool, is_continuous: bool
) -> None:
    """With one poll a minute, ten seconds without a poll are no long gap."""
    clock = FakeClock()
    gaps = tracker(clock, interval=interval)
    poll(gaps, clock)
    clock.advance(seconds)
    gap = gaps.gap(clock.now())
    assert (is_long, is_continuous, "imds") == (gap.is_long, gap.is_continuous, gap.reason)


@pytest.mark.parametrize("ago", [0.0, 1.0, 5.0, 3600.0, -3600.0])
def test_between_two_runs_nobody_looked(ago: float) -> None:
    """Between two runs polls are not continuous, however short the time was: it is not known how an
    event ended.
    """
    clock = FakeClock()
    gap = poll(tracker(clock, ago=ago), clock)
    assert (gap.is_continuous, gap.reason) == (False, "restart")
    assert (gap.seconds, gap.is_long) == (max(0.0, ago), ago > 10)


@pytest.mark.parametrize(("rebooted", "seconds"), [(False, 40.0), (True, 0.0)])
def test_a_clock_that_was_set_back_between_two_runs_hides_no_gap(
    seconds: float, *, rebooted: bool
) -> None:
    """Within one boot the machine's uptime says how long the bridge was away, although the clock
    was set back.
    """
    clock = FakeClock()
    before, polled_at = uptime(clock), clock.now()
    clock.advance(40.0)
    clock.jump(-60.0)
    gaps = GapTracker(
        clock, interval=1.0, polled_at=polled_at, polled_uptime=before, rebooted=rebooted
    )
    gap = poll(gaps, clock)
    assert (gap.seconds, gap.is_long) == (seconds, seconds > 10)


def test_a_reboot_is_told_once() -> None:
    """Only the first poll after a reboot reports it."""
    clock = FakeClock()
    gaps = tracker(clock, ago=60.0, rebooted=True)
    found = [poll(gaps, clock), poll(gaps, clock)]
    assert [(gap.reason, gap.restarted) for gap in found] == [("reboot", True), ("imds", False)]


def test_a_failed_poll_ends_nothing() -> None:
    """A failed poll does not end a gap: the next good poll ends all of it, and reports
    the reboot.
    """
    clock = FakeClock()
    gaps = tracker(clock, ago=60.0, rebooted=True)
    gaps.gap(clock.now())
    clock.advance(5.0)
    gap = gaps.gap(clock.now())
    assert (gap.seconds, gap.restarted) == (65.0, True)


@pytest.mark.parametrize("seconds", [-600.0, 600.0, 30 * 86400.0, 30 * 365 * 86400.0])
def test_a_wall_clock_that_jumps_makes_no_gap(seconds: float) -> None:
    """A jump of the wall clock within a run makes no gap, because the monotonic clock counts."""
    clock = FakeClock()
    gaps = tracker(clock)
    poll(gaps, clock)
    clock.advance(1.0)
    clock.jump(seconds)
    gap = gaps.gap(clock.now())
    assert (gap.seconds, gap.is_long) == (1.0, False)


@pytest.mark.parametrize(("seconds", "is_trusted"), [(-600.0, True), (1.5, False), (125.0, False)])
def test_a_wall_clock_that_jumps_forward_may_be_a_host_that_stood_still(
    seconds: float, *, is_trusted: bool
) -> None:
    """After a jump of the wall clock the document counts as old until the next poll, and that one
    cannot tell how an event ended.
    """
    clock = FakeClock()
    gaps = tracker(clock)
    poll(gaps, clock)
    clock.advance(0.5)
    clock.jump(seconds)
    assert gaps.is_current() is is_trusted
    assert poll(gaps, clock).is_continuous is is_trusted
    assert gaps.is_current()
    clock.advance(1.0)
    assert poll(gaps, clock).is_continuous


@pytest.mark.parametrize(
    ("interval", "ahead", "is_trusted"),
    [(30.0, 2.4, True), (30.0, 5.0, False), (3600.0, 61.0, False)],
)
def test_a_wall_clock_that_is_slewed_has_not_jumped(
    interval: float, ahead: float, *, is_trusted: bool
) -> None:
    """A clock that is set right little by little has not jumped, although it gains more than a
    second over a long interval.
    """
    clock = FakeClock()
    gaps = tracker(clock, interval=interval)
    poll(gaps, clock)
    clock.advance(interval)
    clock.jump(ahead)
    assert gaps.is_current() is is_trusted
    assert poll(gaps, clock).is_continuous is is_trusted


def test_a_pause_belongs_to_the_next_poll() -> None:
    """A pause is reported by the next poll only; one that is measured during a poll is reported by
    the poll after it.
    """
    clock = FakeClock()
    gaps = tracker(clock)
    poll(gaps, clock)
    gaps.note_standstill(1.5)
    gaps.note_standstill(2.0)
    clock.advance(4.0)
    gap = gaps.gap(clock.now())
    gaps.note_standstill(0.25)
    gaps.end_poll(clock.now())
    after = [poll(gaps, clock), poll(gaps, clock)]
    assert (gap.pause_seconds, gap.reason) == (3.5, "pause")
    assert [each.pause_seconds for each in after] == [0.25, 0.0]


def test_a_pause_that_the_monotonic_clock_did_not_count_is_a_gap() -> None:
    """On hosts whose monotonic clock stands still with the VM, the wall clock shows how long a
    pause was.
    """
    clock = FakeClock()
    gaps = tracker(clock)
    poll(gaps, clock)
    clock.advance(0.25)
    gaps.note_standstill(20.0)
    assert not gaps.is_current()
    gap = poll(gaps, clock)
    assert (gap.seconds, gap.reason, gap.is_continuous) == (20.25, "pause", False)
    assert gaps.is_current()


@pytest.mark.parametrize("long", ["answer", "commit"])
def test_a_poll_that_stands_still_does_not_look(long: str) -> None:
    """The document of a poll that stood still is as old as its request, and the next poll ends the
    gap.
    """
    clock = FakeClock()
    gaps = tracker(clock)
    poll(gaps, clock)
    clock.advance(1.0)
    poll(gaps, clock, **{long: 20.0})
    assert not gaps.is_current()
    clock.advance(1.0)
    gap = poll(gaps, clock)
    assert (gap.seconds, gap.is_long, gap.is_continuous) == (21.0, True, False)
    assert gaps.is_current()


def test_a_pause_while_a_poll_waits_for_its_answer_makes_its_document_old() -> None:
    """If the VM is paused while a poll waits, its document counts as old: the answer may be from
    before the pause.
    """
    clock = FakeClock()
    gaps = tracker(clock)
    poll(gaps, clock)
    clock.advance(1.0)
    gaps.begin_poll()
    gaps.note_standstill(20.0)
    gap = gaps.gap(clock.now())
    gaps.end_poll(clock.now())
    assert (gap.seconds, gap.is_continuous, gap.pause_seconds) == (21.0, False, 20.0)
    assert not gaps.is_current()
    clock.advance(1.0)
    gap = poll(gaps, clock)
    assert (gap.seconds, gap.is_continuous, gap.pause_seconds) == (21.0, False, 0.0)
    assert gaps.is_current()


def test_what_stood_still_before_its_answer_was_read_is_a_gap_at_once() -> None:
    """If the VM stood still before the answer was read, that poll reports the gap, because the
    answer may be from after it.
    """
    clock = FakeClock()
    gaps = tracker(clock)
    poll(gaps, clock)
    clock.advance(1.0)
    gap = poll(gaps, clock, answer=20.0)
    assert (gap.seconds, gap.is_continuous) == (21.0, False)


def test_answers_that_always_take_their_time_make_no_document_old() -> None:
    """From its second answer on, a service that is always slow delays approvals no longer than a
    fast one.
    """
    clock = FakeClock()
    gaps = tracker(clock)
    current = []
    for _ in range(3):
        gap = poll(gaps, clock, answer=4.0)
        current.append(gaps.is_current())
        clock.advance(1.0)
    assert current == [False, True, True]
    assert gap.is_continuous


def test_an_outage_with_a_short_pause_in_it_is_an_outage() -> None:
    """A pause is the reason of a gap only if it is most of the gap."""
    clock = FakeClock()
    gaps = tracker(clock)
    poll(gaps, clock)
    gaps.note_standstill(2.0)
    clock.advance(60.0)
    assert gaps.gap(clock.now()).reason == "imds"


def test_a_gap_longer_than_the_calendar_is_survived() -> None:
    """A gap that is longer than the calendar begins at the last known poll."""
    clock = FakeClock()
    gaps = tracker(clock)
    poll(gaps, clock)
    clock.advance(1.0)
    clock.jump(-(NOW.replace(tzinfo=None) - NOW.min).total_seconds())
    clock.advance(-1.0)
    assert gaps.gap(clock.now()).since is not None
