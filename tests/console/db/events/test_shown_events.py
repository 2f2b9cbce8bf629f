"""Which of its reporters an event is shown by, and what one VM can say of another's event."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import event
from support.console.intake import NOW, Intake
from support.console.records import FakeVm

from console.db.connection.transactions import read_from


def test_what_no_named_vm_reports_is_shown_by_the_newest_report(intake: Intake) -> None:
    """If no named VM reports an event, it is shown by the newest report: by its time, not by its
    arrival, and each reporter counts with its own newest record.
    """
    one, two = FakeVm(name="one"), FakeVm(name="two")
    first = one.event("E", resources=["web-1"], now=NOW - timedelta(seconds=20))
    started = one.event(
        "E", transition="started", resources=["web-1"], now=NOW - timedelta(seconds=5)
    )
    late = two.event("E", resources=["web-1"], now=NOW - timedelta(seconds=10))
    intake.take(started, first, late)
    assert intake.event().event.state == "started"
    assert intake.event().event.shown_by == one.vm_id
    assert intake.event().seen_by == 2


def test_an_event_that_goes_on_without_a_reporter_is_not_over(intake: Intake) -> None:
    """If a bridge that records only its own events ends an event that no longer names its VM, the
    event is open as long as others report it.
    """
    left, named = FakeVm(name="left"), FakeVm(name="named")
    first = [vm.event("E", resources=["left", "named"], now=NOW) for vm in (left, named)]
    without = {"goesOnWithoutThisVm": True}
    ended = left.event("E", transition="ended", status="Unknown", now=NOW, observation=without)
    intake.take(first[0], first[1], ended)
    assert intake.event().event.state == "scheduled"


def test_a_clock_that_is_a_day_ahead_does_not_win_for_a_day(intake: Intake) -> None:
    """The time of a record counts at most as the time at which it came in, so a clock that is ahead
    gains nothing.
    """
    ahead, right = FakeVm(name="ahead"), FakeVm(name="right")
    intake.take(ahead.event("E", resources=["web-1"], now=NOW + timedelta(days=1)))
    intake.now += timedelta(seconds=6)
    intake.take(
        right.event("E", transition="ended", resources=["web-1"], now=NOW + timedelta(seconds=5))
    )
    assert intake.event().event.state == "ended"


@pytest.mark.parametrize("transition", ["ended", "started"])
def test_another_vm_ends_no_event_that_a_named_vm_reports_as_pending(
    intake: Intake, transition: str
) -> None:
    """Another VM cannot end an event that a named VM reports as pending, in the same transaction or
    a later one, before the named VM or after it.
    """
    web, liar = FakeVm(), FakeVm(name="liar")
    intake.take(web.event("E", now=NOW), liar.heartbeat(now=NOW))
    intake.now += timedelta(seconds=5)
    forged = liar.event("E", transition=transition, resources=["web-1"], now=intake.now)
    intake.take(forged)
    known = intake.event()
    assert (known.event.state, known.event.shown_by) == ("scheduled", web.vm_id)
    assert known.reports_differ
    intake.take(web.event("E", transition="ended", now=intake.now))
    assert intake.event().event.state == "ended"


def test_a_peer_shows_an_event_while_its_vm_is_not_heard(intake: Intake) -> None:
    """While the named VM is away for its event and not heard, a peer's report is shown; once it is
    heard, its own report is shown again.
    """
    web, peer = FakeVm(), FakeVm(name="peer")
    intake.take(web.event("E", now=NOW), peer.event("E", resources=["web-1"], now=NOW))
    intake.now += timedelta(seconds=5)
    started = peer.event("E", transition="started", resources=["web-1"], now=intake.now)
    intake.take(started)
    assert intake.event().event.state == "scheduled"
    intake.let_pass(120)
    assert (intake.event().event.state, intake.event().event.shown_by) == ("started", peer.vm_id)
    intake.take(web.heartbeat(now=intake.now))
    assert (intake.event().event.state, intake.event().event.shown_by) == ("scheduled", web.vm_id)


def test_a_vm_that_has_stopped_leaves_its_event_to_its_peers(intake: Intake) -> None:
    """Once the named VM has reported that it stops, a peer's report is shown at once."""
    web, peer = FakeVm(), FakeVm(name="peer")
    intake.take(web.event("E", now=NOW), web.stopped(now=NOW))
    intake.take(peer.event("E", transition="started", resources=["web-1"], now=NOW))
    assert intake.event().event.state == "started"


@pytest.mark.parametrize("is_older", [True, False])
def test_a_vm_that_adds_itself_to_an_event_does_not_take_it_over(
    intake: Intake, is_older: bool
) -> None:
    """If a VM adds its own name to an event, the report with more heard reporters is shown,
    whichever VM has been known longer.
    """
    web, peer, liar = FakeVm(), FakeVm(name="peer"), FakeVm(name="liar")
    if is_older:
        intake.take(liar.heartbeat(now=NOW))
        intake.now += timedelta(seconds=1)
    own, other = ["web-1"], ["liar"]
    intake.take(web.event("E", now=NOW), peer.event("E", resources=own, now=NOW))
    for names in (other, [*own, *other]):
        for transition in ("scheduled", "started", "ended"):
            intake.now += timedelta(seconds=1)
            forged = liar.event("E", transition=transition, resources=names, now=intake.now)
            intake.take(forged)
            known = intake.event()
            assert (known.event.state, known.event.shown_by) == ("scheduled", web.vm_id)
            assert known.shown.report.event.resources == ("web-1",)


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("is_older", [True, False])
def test_an_event_that_returns_with_fewer_names_is_pending(
    intake: Intake, *, is_named: bool, is_older: bool
) -> None:
    """An event that was over returns by the report of a VM that it named before, though the VM that
    it does not name any more says nothing. A VM that it did not name brings nothing back.
    """
    stays, left, liar = FakeVm(name="stays"), FakeVm(name="left"), FakeVm(name="liar")
    for vm in (stays, left) if is_older else (left, stays):
        intake.take(vm.heartbeat(now=NOW))
        intake.now += timedelta(seconds=1)
    both = ["stays", "left"]
    for transition in ("scheduled", "ended"):
        intake.take(
            *(
                vm.event("E", transition=transition, resources=both, now=intake.now)
                for vm in (stays, left)
            )
        )
        intake.now += timedelta(seconds=5)
    assert intake.event().event.state == "ended"
    back = stays if is_named else liar
    intake.take(back.event("E", resources=[back.name], now=intake.now))
    assert intake.event().event.state == ("scheduled" if is_named else "ended")
    intake.now += timedelta(seconds=5)
    intake.take(*(vm.heartbeat(now=intake.now) for vm in (left, stays)))
    assert intake.event().event.state == ("scheduled" if is_named else "ended")
    intake.take(back.event("E", transition="ended", resources=[back.name], now=intake.now))
    assert intake.event().event.state == "ended"


def test_one_of_three_named_vms_brings_no_event_back(intake: Intake) -> None:
    """An event that two named VMs report as over is not brought back by the third one alone."""
    vms = [FakeVm(name=name) for name in ("one", "two", "liar")]
    names = [vm.name for vm in vms]
    for transition in ("scheduled", "ended"):
        intake.take(
            *(vm.event("E", transition=transition, resources=names, now=intake.now) for vm in vms)
        )
        intake.now += timedelta(seconds=5)
    intake.take(vms[2].event("E", resources=["liar"], now=intake.now))
    assert intake.event().event.state == "ended"


def test_another_scope_has_an_event_of_its_own_under_the_same_id(intake: Intake) -> None:
    """An event of another scope with the same id hides, ends and renames nothing; both are marked,
    and the id alone means the event of the VM that has been known longer.
    """
    web, liar = FakeVm(), FakeVm(name="web-1", group="group-9", site="zurich")
    intake.take(web.event("E", now=NOW))
    intake.now += timedelta(seconds=5)
    intake.take(liar.event("E", transition="started", now=intake.now))
    intake.take(liar.event("E", transition="ended", now=intake.now))
    known, other = intake.event(), intake.event(scope="sub-1/group-9")
    assert (known.event.state, known.event.scope) == ("scheduled", "sub-1/group-1")
    assert known.event.sites == ("default",)
    assert (other.event.state, other.event.sites) == ("ended", ("zurich",))
    assert known.other_scopes == ("sub-1/group-9",)
    assert other.other_scopes == ("sub-1/group-1",)
    assert (known.seen_by, other.seen_by) == (1, 1)


@pytest.mark.parametrize("is_heard_of_it", [True, False])
def test_the_namesake_of_a_named_vm_brings_its_own_site_into_no_event(
    intake: Intake, *, is_heard_of_it: bool
) -> None:
    """A VM in another scale set that bears a named VM's name does not add its site to the event:
    its site cannot see the event, nor take it from the sites that it concerns. It counts as the
    named VM only if no other VM has that name.
    """
    web, peer = FakeVm(), FakeVm(name="web-2")
    namesake = FakeVm(name="web-1", scale_set="other", site="zurich")
    intake.take(web.heartbeat(now=NOW), peer.heartbeat(now=NOW))
    first = web if is_heard_of_it else peer
    intake.take(first.event("E", resources=["web-1", "web-2"], now=NOW))
    intake.now += timedelta(seconds=5)
    intake.take(namesake.event("E", resources=["web-1", "web-2"], now=intake.now))
    assert intake.event().event.sites == ("default",)
    intake.take(peer.event("E-2", resources=["web-3", "web-2"], now=intake.now))
    other = FakeVm(name="web-3", scale_set="other", site="zurich")
    intake.take(other.event("E-2", resources=["web-3", "web-2"], now=intake.now))
    assert intake.event("E-2").event.sites == ("default", "zurich")


def test_other_words_for_the_same_event_are_shown_as_differing(intake: Intake) -> None:
    """Reports with another description or impact, which the fingerprint does not cover, are shown
    as differing; the named VM's are the ones shown.
    """
    web, liar = FakeVm(), FakeVm(name="liar")
    intake.take(web.event("E", description="Maintenance.", now=NOW))
    assert not intake.event().reports_differ
    intake.now += timedelta(seconds=5)
    forged = {"resources": ["web-1"], "description": "Nothing happens.", "impact": "none"}
    intake.take(liar.event("E", now=intake.now, **forged))  # type: ignore[arg-type]
    known = intake.event()
    assert (known.shown.report.event.description, known.shown.report.impact) == (
        "Maintenance.",
        "restart",
    )
    assert known.reports_differ


def test_a_receipt_of_a_vm_that_was_not_asked_says_nothing_while_another_waits(
    intake: Intake,
) -> None:
    """An invented `accepted` for another VM's event blocks no decision; a VM's receipt about its
    own event counts.
    """
    web, second = FakeVm(), FakeVm(name="web-2")
    names = ["web-1", "web-2"]
    intake.take(*(vm.event("E", resources=names, now=NOW) for vm in (web, second)))
    intake.take(second.receipt("E", "accepted", now=NOW), FakeVm(name="x").receipt("E", "posted"))
    assert intake.event().receipts == []
    alone = FakeVm(name="web-3")
    intake.take(alone.event("F", now=NOW), alone.receipt("F", "accepted", now=NOW))
    assert [each.vm_id for each in intake.event("F").receipts] == [alone.vm_id]


def test_a_vm_whose_scope_is_learned_later_takes_its_event_along(intake: Intake) -> None:
    """An event that a VM reported before its scope was known moves into that scope, and is not a
    second event.
    """
    web = FakeVm()
    nowhere = FakeVm(vm_id=web.vm_id, stream=web.stream, subscription=None, group=None)
    intake.take(nowhere.event("E", now=NOW))
    web.sequence = nowhere.sequence
    intake.take(web.event("E", transition="updated", now=NOW))
    with read_from(intake.database.reading) as connection:
        snapshot = intake.snapshots.of(connection)
        assert [each.event.scope for each in snapshot.event_lists.open_events()] == [
            "sub-1/group-1"
        ]
        assert snapshot.event_lists.count_open() == 1


def test_a_vm_whose_scope_is_learned_later_shows_no_event_that_is_another_vms(
    intake: Intake,
) -> None:
    """A VM that reported the id of another VM's event before its scope was known does not show that
    event once it moves into its scope.
    """
    web = FakeVm()
    liar = FakeVm(name="liar", group=None)
    forged = {"resources": ["web-1"], "event_type": "Terminate", "impact": "delete"}
    intake.take(web.event("E", now=NOW))
    intake.take(liar.event("E", now=NOW, **forged))  # type: ignore[arg-type]
    liar.group = web.group
    intake.take(liar.heartbeat(now=NOW))
    known = intake.event()
    assert known.shown.vm_id == known.event.shown_by == web.vm_id
    assert [each.vm_id for each in known.named.values()] == [web.vm_id]


def retired(intake: Intake, vm: FakeVm) -> bool:
    """Check whether a VM is retired."""
    with intake.snapshots.open() as snapshot:
        found = snapshot.vms.find_vm(vm.vm_id)
    assert found is not None
    return found.contact == "retired"


@pytest.mark.parametrize(
    ("event_type", "knows"), [("Terminate", True), ("Reboot", True), ("Terminate", False)]
)
def test_a_deletion_that_a_peer_reports_retires_a_vm_once_it_is_not_heard(
    intake: Intake, event_type: str, *, knows: bool
) -> None:
    """A peer's report of a deletion retires a VM that is not heard. The VM itself must have
    reported the deletion, and the peer must be in its place; hearing the VM again ends that.
    """
    peer, gone = FakeVm(name="a", scale_set="set"), FakeVm(name="b", scale_set="set")
    namesake = FakeVm(name="b", scale_set="other")
    intake.take(gone.heartbeat(now=NOW), namesake.heartbeat(now=NOW))
    deleted = {"resources": ["b"], "impact": "delete", "event_type": event_type}
    if knows:
        intake.take(gone.event("E", now=NOW, **deleted))  # type: ignore[arg-type]
    intake.now += timedelta(seconds=5)
    intake.take(peer.event("E", transition="ended", now=intake.now, **deleted))  # type: ignore[arg-type]
    assert not retired(intake, gone)
    intake.let_pass(600)
    assert retired(intake, gone) == (knows and event_type == "Terminate")
    assert not retired(intake, namesake)
    intake.take(gone.heartbeat(now=intake.now))
    assert not retired(intake, gone)
    intake.let_pass(600)
    assert not retired(intake, gone)


@pytest.mark.parametrize(
    ("own_type", "own_end"), [("Reboot", None), ("Terminate", "Canceled"), ("Terminate", "Unknown")]
)
def test_a_peer_makes_no_deletion_of_what_a_vm_has_said_otherwise(
    intake: Intake, own_type: str, own_end: str | None
) -> None:
    """A VM that is down for its reboot, or whose deletion was canceled, is not retired, whatever a
    peer reports of that event.
    """
    peer, away = FakeVm(name="a"), FakeVm(name="b")
    intake.take(peer.heartbeat(now=NOW), away.event("E", event_type=own_type, now=NOW))
    if own_end is not None:
        intake.take(
            away.event("E", transition="ended", status=own_end, event_type=own_type, now=NOW)
        )
    intake.let_pass(600)
    for transition in ("scheduled", "started", "ended"):
        intake.now += timedelta(seconds=1)
        deleted = {"event_type": "Terminate", "impact": "delete", "resources": ["b"]}
        intake.take(peer.event("E", transition=transition, now=intake.now, **deleted))  # type: ignore[arg-type]
    intake.let_pass(600)
    assert not retired(intake, away)


def test_its_own_report_of_its_deletion_retires_nobody(intake: Intake) -> None:
    """A VM that reports its own deletion as over is not retired, because it is there to
    report it.
    """
    vm = FakeVm(name="b")
    gone = vm.event("E", transition="ended", event_type="Terminate", impact="delete", now=NOW)
    intake.take(gone)
    intake.let_pass(600)
    assert not retired(intake, vm)


def test_an_event_keeps_what_was_measured_of_it(intake: Intake) -> None:
    """An event keeps the time at which it began, the longest notice and the longest absence; what a
    VM measured that it does not name does not count.
    """
    one, two, other = FakeVm(name="a"), FakeVm(name="b"), FakeVm(name="c")

    def say(vm: FakeVm, transition: str, second: int, **measured: float) -> None:
        record = vm.event(
            "E",
            transition=transition,
            resources=["a", "b"],
            now=NOW + timedelta(seconds=second),
            observation={"noticeSeconds": None, **measured},
        )
        intake.now = NOW + timedelta(seconds=second)
        intake.take(record)

    say(one, "scheduled", 0, noticeSeconds=890.0)
    say(two, "scheduled", 5, noticeSeconds=885.0)
    say(two, "started", 900)
    say(one, "started", 901)
    say(other, "ended", 930, downtimeSeconds=500.0)
    say(one, "ended", 931, downtimeSeconds=30.0)
    say(two, "ended", 940, pauseSeconds=9.0)
    event = intake.event().event
    assert (event.status, event.started_at) == ("Completed", NOW.timestamp() + 900)
    assert (event.notice, event.downtime) == (890, 30)


@pytest.mark.parametrize(
    "batches", [[[0], [1], [2]], [[0, 1, 2]], [[0, 2], [1]], [[2, 1, 0]], [[2], [1], [0]]]
)
@pytest.mark.parametrize("is_named", [True, False])
def test_what_was_measured_is_known_in_whatever_batches_it_came(
    intake: Intake, batches: list[list[int]], *, is_named: bool
) -> None:
    """What a VM measured is kept although all its records come in at once after an outage, and some
    of them late.
    """
    vm = FakeVm(name="a")
    resources = ["a" if is_named else "b"]
    times = [NOW - timedelta(minutes=20), NOW - timedelta(minutes=5), NOW - timedelta(minutes=1)]
    records = [
        vm.event("E", transition=transition, now=time, resources=resources)
        for transition, time in zip(("scheduled", "started", "ended"), times, strict=True)
    ]
    for batch in batches:
        intake.take(*(records[number] for number in batch))
    found = intake.event().event
    moments = (found.first_seen_at, found.started_at, found.shown_at)
    assert moments == tuple(time.timestamp() for time in times)
    assert found.state == "ended"


def test_names_of_any_length_are_written_when_another_reporter_shows_them(intake: Intake) -> None:
    """Names of any length can be written to the index when another reporter begins to show the
    event.
    """
    signs = "".join(chr(0x20000 + 37 * number) for number in range(300))
    first = FakeVm(name="a", vm_id="a", subscription=signs, interval=1)
    second = FakeVm(name="b", vm_id="b", subscription=signs)
    event_id = signs[::-1]
    intake.take(first.heartbeat(now=NOW), first.event(event_id, now=NOW))
    intake.take(second.event(event_id, resources=["b", signs], now=NOW))
    assert intake.event(event_id).event.shown_by == "a"
    intake.let_pass(30)
    assert intake.event(event_id).event.shown_by == "b"


@pytest.mark.parametrize("is_first", [True, False])
def test_a_vm_that_adds_itself_or_is_not_named_dates_no_event(
    intake: Intake, *, is_first: bool
) -> None:
    """Old times and long absences from a VM that the event does not name, or that adds itself, do
    not become part of the event.
    """
    named, peer, liar = FakeVm(name="a"), FakeVm(name="b"), FakeVm(name="liar")
    intake.take(*(vm.heartbeat(now=NOW) for vm in (named, peer, liar)))
    old = NOW - timedelta(days=4000)
    lies = [
        liar.event(
            "E",
            resources=names,
            transition=transition,
            now=old,
            observation={"noticeSeconds": 9e6, "downtimeSeconds": 9e6},
        )
        for transition in ("scheduled", "started")
        for names in (["a"], ["a", "liar"])
    ]
    if is_first:
        intake.take(*lies)
    intake.take(*(vm.event("E", resources=["a"], now=NOW) for vm in (peer, named)))
    if not is_first:
        intake.take(*lies)
    event = intake.event().event
    assert (event.shown_by, event.state) == (named.vm_id, "scheduled")
    assert event.first_seen_at == NOW.timestamp()
    if not is_first:  # before that nobody else knows of the event
        assert (event.started_at, event.notice, event.downtime) == (None, 900, None)


def test_an_event_that_names_others_each_time_is_written_with_few_questions(
    intake: Intake,
) -> None:
    """An event that names thousands of other VMs each time is written with few queries, because
    other messages wait for the transaction. A VM that is no longer named has changed.
    """
    web, liar = FakeVm(), FakeVm(name="liar")
    intake.take(web.heartbeat(now=NOW), liar.heartbeat(now=NOW))
    names = [[f"{letter}-{number}" for number in range(2000)] for letter in "ab"]
    intake.take(liar.event("E", resources=[*names[0], "web-1", "liar"], now=NOW))
    before = intake.vm(web).vm.change_number
    asked: list[str] = []

    def note(*given: object) -> None:
        asked.append(str(given[2]))

    event.listen(intake.database.writing, "before_cursor_execute", note)
    intake.take(liar.event("E", resources=[*names[1], "liar"], now=NOW))
    event.remove(intake.database.writing, "before_cursor_execute", note)
    assert len(asked) < 40
    assert intake.vm(web).vm.change_number > before
    assert set(intake.event().named) == {"liar"}
