"""Turns: who gets the next one, what blocks whom, and when a turn ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from support.console.reported_event import reported

from console.config.groups import GroupSettings
from console.fleet.values.keys import EventKey
from console.turns.away import away_by_group
from console.turns.changed_turns import give_turn
from console.turns.facts import EventFacts, Turn, TurnFacts, TurnVm, VmFacts, VmPreparation
from console.turns.groups import Group, Member, groups_of
from console.turns.plan import Plan, plan
from console.turns.preparing_vms import UNANSWERED_SECONDS
from console.turns.returns import ANSWER_SECONDS
from console.turns.what_happened import STUCK_SECONDS

NOW = 1_000_000.0
SOON = NOW + 900
A = EventKey("a", "")
B = EventKey("b", "")
Z = EventKey("z", "")


def settings(**keys: object) -> GroupSettings:
    """Return a group that approves everything by itself, unless the keys say otherwise."""
    return GroupSettings.model_validate({"name": "etcd", "approve": {}, **keys})


def groups(*rules: GroupSettings, count: int = 3) -> dict[str, Group]:
    """Return the groups of `count` VMs, v1 and so on."""
    members = [Member(vm_id=f"v{n}", name=f"db-{n}") for n in range(1, count + 1)]
    return groups_of(rules or [settings()], members)


def vm(vm_id: str, **facts: object) -> VmFacts:
    """Return a VM that is heard, takes commands and prepares."""
    given = {
        "name": vm_id.replace("v", "db-"),
        "groups": frozenset({"etcd"}),
        "contact": "heard",
        "heard_at": NOW,
        "prepares": True,
        "takes_commands": True,
    }
    return VmFacts(vm_id=vm_id, **{**given, **facts})  # type: ignore[arg-type]


def event(key: EventKey, *named: str, **facts: object) -> EventFacts:
    """Return a scheduled event that names these VMs."""
    given = {
        "fingerprint": f"{key.event_id}-1",
        "reported": reported(key.event_id),
        "status": "Scheduled",
        "not_before": SOON,
    }
    return EventFacts(key=key, named=frozenset(named), **{**given, **facts})  # type: ignore[arg-type]


def situation(
    events: Iterable[EventFacts] = (),
    vms: Iterable[VmFacts] = (),
    turns: Iterable[Turn] = (),
    *rules: GroupSettings,
) -> TurnFacts:
    """Return one reading, with three VMs that are heard unless others are given."""
    found = {f"v{n}": vm(f"v{n}") for n in range(1, 4)} | {each.vm_id: each for each in vms}
    return TurnFacts(
        groups=groups(*rules),
        vms=found,
        events={each.key: each for each in events},
        turns={each.event_key: each for each in turns},
    )


def done(before: TurnFacts, now: float = NOW) -> tuple[TurnFacts, Plan]:
    """Return the reading after everything that is to be done now was written, and the plan."""
    todo = plan(before, now)
    return before.with_turns(todo.turns), todo


def preparation(key: EventKey, state: str, at: float = NOW) -> VmPreparation:
    """Return a preparation as a VM reported it."""
    return VmPreparation(event_key=key, fingerprint=f"{key.event_id}-1", state=state, at=at)  # type: ignore[arg-type]


def test_of_two_events_the_one_that_begins_first_gets_the_turn() -> None:
    """Of two events, the one with the earlier notBefore gets the turn; the other one waits and
    names it.
    """
    first, second = event(B, "v1", not_before=SOON), event(A, "v2", not_before=SOON + 1)
    after, todo = done(situation([second, first]))
    assert todo.given == (B,)
    assert todo.waiting[A].behind == (B,)
    assert after.turns[B].state == "preparing"
    assert after.turns[A].state == "waiting"


def test_each_named_vm_that_prepares_is_asked_to() -> None:
    """Each named VM that prepares gets a command to prepare; a VM that prepares nothing
    gets none.
    """
    reading = situation([event(A, "v1", "v2")], [vm("v2", prepares=False)], (), settings(at_most=2))
    after, _ = done(reading)
    assert plan(after, NOW).prepares == ((A, "v1"),)


def test_it_is_approved_once_every_vm_is_prepared() -> None:
    """An event is approved once every VM has prepared for this state of it; a report about another
    state does not count.
    """
    start = situation([event(A, "v1")])
    preparing, _ = done(start)
    other = VmPreparation(event_key=A, fingerprint="a-0", state="prepared", at=NOW)
    still, _ = done(replace(preparing, vms={**preparing.vms, "v1": vm("v1", preparations=[other])}))
    assert still.turns[A].state == "preparing"
    ready = vm("v1", preparations=[preparation(A, "prepared")])
    prepared, todo = done(replace(preparing, vms={**preparing.vms, "v1": ready}))
    assert (prepared.turns[A].state, todo.approvals) == ("prepared", ())
    assert plan(prepared, NOW).approvals == (A,)


def test_what_is_prepared_waits_while_another_member_is_away() -> None:
    """An event whose VMs are prepared waits while another member is away because of Azure's own
    start or a crash.
    """
    ready = vm("v1", preparations=[preparation(A, "prepared")])
    turn = replace(turn_of(A, "v1"), state="prepared")
    reading = situation([event(A, "v1")], [ready, vm("v2", contact="silent")], [turn])
    assert plan(reading, NOW).approvals == ()
    assert plan(replace(reading, vms={**reading.vms, "v2": vm("v2")}), NOW).approvals == (A,)


def test_what_waits_prepared_is_prepared_again_once_it_is_not() -> None:
    """If a VM of a prepared event has recovered or was made again meanwhile, it is asked to prepare
    before anything is approved.
    """
    turn = replace(turn_of(A, "v1"), state="prepared")
    recovered = vm("v1", preparations=[preparation(A, "recovered")])
    reading = situation([event(A, "v1")], [recovered], [turn])
    after, todo = done(reading)
    assert (after.turns[A].state, todo.approvals) == ("preparing", ())
    assert plan(after, NOW).prepares == ((A, "v1"),)


def test_an_approval_that_is_not_there_is_no_approval_under_way() -> None:
    """If a person left the event after its approval had ended, no approval counts as under way."""
    turn = replace(turn_of(A, "v1"), state="approving")
    left = event(A, "v1", is_left=True)
    after, _ = done(situation([left], (), [turn]))
    assert after.turns[A].state == "failed"
    assert after.turns[A].reason == "a person left it until Azure starts it"


def test_what_returns_after_a_deadline_of_its_own_waits_for_its_turn() -> None:
    """If an event returns whose VM had prepared at its own deadline, it waits for its turn like any
    other event: the VM counts as away, and nobody has approved it.
    """
    gone = vm("v1", preparations=[replace(preparation(A, "prepared"), fingerprint="")])
    for others, approve, state in (
        ([], {}, "preparing"),
        ([vm("v2", contact="silent")], {}, "waiting"),
        ([], None, "waiting"),
    ):
        rules = settings(approve=approve)
        vms = [gone, *others]
        waiting, _ = done(situation([event(A, "v1", not_before=NOW + 20)], vms, (), rules))
        away, _ = done(replace(waiting, events={}))
        assert away.turns[A].state == "away"
        back, todo = done(replace(away, events={A: event(A, "v1")}))
        assert (back.turns[A].state, back.turns[A].vms) == ("waiting", ())
        assert todo.prepares == ()
        after, _ = done(back)
        assert after.turns[A].state == state
        assert after.turns[A].actor == ("group:etcd" if state == "preparing" else None)


def test_no_vm_is_asked_to_prepare_beside_one_that_has_gone_since() -> None:
    """No VM is asked to prepare once another one has gone away since, because it may not have got
    the first command. By force it is asked all the same.
    """
    preparing, _ = done(situation([event(A, "v1")]))
    gone = replace(preparing, vms={**preparing.vms, "v2": vm("v2", contact="silent")})
    assert plan(preparing, NOW).prepares == ((A, "v1"),)
    after, todo = done(gone)
    assert (todo.prepares, after.turns[A].reason) == ((), "2 of etcd away, and 1 may be")
    forced = {A: replace(gone.turns[A], is_overridden=True)}
    assert plan(replace(gone, turns=forced), NOW).prepares == ((A, "v1"),)


def test_in_the_step_in_which_a_turn_fails_no_vm_is_asked() -> None:
    """In the step in which a turn fails, because a person has left the event, no VM is asked to
    prepare.
    """
    preparing, _ = done(situation([event(A, "v1")]))
    left = replace(preparing, events={A: event(A, "v1", is_left=True)})
    after, todo = done(left)
    assert (after.turns[A].state, todo.prepares) == ("failed", ())


def test_a_turn_is_not_held_for_a_vm_that_does_not_answer() -> None:
    """If a VM does not answer for some minutes, the next event gets its turn, and this one is tried
    again once there is room.
    """
    far = NOW + 36_000
    reading = situation([event(A, "v1", not_before=far), event(B, "v2", not_before=far + 1)])
    for _ in range(3):
        reading, _ = done(reading)
    failed, todo = done(reading, NOW + UNANSWERED_SECONDS)
    assert (failed.turns[A].state, failed.turns[A].reason) == ("failed", "db-1 did not answer")
    assert todo.prepares == ()
    later = NOW + UNANSWERED_SECONDS + ANSWER_SECONDS
    assert done(failed, later)[0].turns[B].state == "waiting"
    heard = replace(failed, vms={**failed.vms, "v1": vm("v1", heard_at=later)})
    reporting = done(heard, later)[0]
    assert reporting.turns[B].state == "waiting"
    later += 10
    next_one, _ = done(done(reporting, later)[0], later)
    assert (next_one.turns[B].state, next_one.turns[A].state) == ("preparing", "failed")
    again = later + UNANSWERED_SECONDS
    assert done(next_one, again)[0].turns[A].state == "failed"
    alone = replace(next_one, events={A: next_one.events[A]})
    alone = replace(alone, turns={A: next_one.turns[A]})
    tried, _ = done(alone, again)
    assert tried.turns[A].state == "preparing"
    joined, _ = done(tried, again)
    assert joined.turns[A].vm_ids == {"v1"}
    assert plan(joined, again).prepares == ((A, "v1"),)


def test_a_vm_that_is_not_to_be_asked_yet_is_not_one_that_does_not_answer() -> None:
    """The time for a VM's answer does not run while another VM is away, nor while its
    program runs.
    """
    reading = done(done(situation([event(A, "v1", not_before=NOW + 36_000)]))[0])[0]
    assert reading.turns[A].vms[0].unanswered_since == NOW
    full = replace(reading, vms={**reading.vms, "v2": vm("v2", contact="silent")})
    full, _ = done(full, NOW + 10)
    assert full.turns[A].vms[0].unanswered_since is None
    room, _ = done(replace(full, vms=reading.vms), NOW + 500)
    assert room.turns[A].state == "preparing"
    running = vm("v1", preparations=[preparation(A, "preparing")])
    busy, _ = done(replace(reading, vms={**reading.vms, "v1": running}), NOW + 9_000)
    assert busy.turns[A].state == "preparing"


def test_a_turn_that_failed_goes_on_again_only_within_the_budget() -> None:
    """A turn that failed does not continue in its next window if another member has crashed
    meanwhile.
    """
    preparing, _ = done(situation([event(A, "v1")]))
    failed = replace(preparing.turns[A], state="failed")
    reading = replace(preparing, turns={A: failed})
    full = replace(reading, vms={**reading.vms, "v2": vm("v2", contact="silent")})
    assert done(full)[0].turns[A].state == "failed"
    assert done(reading)[0].turns[A].state == "preparing"


def test_a_vm_of_a_turn_that_failed_is_back_once_it_has_recovered_and_rested() -> None:
    """If a turn failed because its group does not approve the event any more, its VM is back once
    it has recovered and rested.
    """
    turn = replace(turn_of(A, "v1"), state="failed")
    half = vm("v1", preparations=[preparation(A, "failed")])
    back = vm("v1", preparations=[preparation(A, "recovered")])
    rules = settings(approve=None, rest=60)
    assert done(situation([event(A, "v1")], [half], [turn], rules))[0].turns[A].vm_ids == {"v1"}
    resting, _ = done(situation([event(A, "v1")], [back], [turn], rules))
    assert done(resting, NOW + 59)[0].turns[A].vm_ids == {"v1"}
    freed, _ = done(resting, NOW + 60)
    assert freed.turns[A].vm_ids == set()
    started = replace(freed, events={A: event(A, "v1", status="Started")})
    assert done(started, NOW + 90)[0].turns[A].vm_ids == {"v1"}


def test_a_vm_that_may_have_told_azure_to_begin_is_held() -> None:
    """A VM whose approval has failed keeps its turn until its reports have had time to come, and
    longer if Azure's answer was lost, or if a command is on its way to it.
    """
    turn = replace(turn_of(A, "v1"), state="failed", actor="alice")
    nothing = vm("v1", prepares=False)
    free = situation([event(A, "v1", approval="failed")], [nothing], [turn])
    waiting, _ = done(free)
    assert done(waiting, NOW + 9)[0].turns[A].vm_ids == {"v1"}
    free = waiting
    assert done(free, NOW + 10)[0].turns[A].vm_ids == set()
    unsure = event(A, "v1", approval="failed", may_begin=True)
    assert done(replace(free, events={A: unsure}), NOW + 10)[0].turns[A].vm_ids == {"v1"}
    followed = replace(free, followed_until={A: NOW + 11})
    assert done(followed, NOW + 10)[0].turns[A].vm_ids == {"v1"}


def test_a_turn_waits_for_a_vm_that_has_not_said_whether_it_prepares() -> None:
    """An event that a person approved is not sent before a heartbeat has said whether its VM
    prepares.
    """
    turn = replace(done(situation([event(A, "v1")]))[0].turns[A], actor="alice")
    mute = situation([event(A, "v1")], [vm("v1", prepares=False, has_said=False)], [turn])
    after, _ = done(mute)
    assert after.turns[A].state == "preparing"
    assert after.turns[A].reason == "the console does not know yet whether db-1 can prepare"
    told = replace(after, vms={**after.vms, "v1": vm("v1", prepares=False)})
    assert done(told)[0].turns[A].state == "prepared"


def test_a_turn_does_not_wait_for_ever_for_a_vm_that_never_says_whether_it_prepares() -> None:
    """A VM without heartbeats may never say it: after five minutes the turn fails, and a person who
    overrides the budget does not wait at all.
    """
    turn = replace(done(situation([event(A, "v1")]))[0].turns[A], actor="alice")
    mute = situation([event(A, "v1")], [vm("v1", prepares=False, has_said=False)], [turn])
    after, _ = done(mute)
    late = plan(after, NOW + UNANSWERED_SECONDS).turns[A]
    assert late.state == "failed"
    assert late.reason == "the console does not know whether db-1 can prepare"
    forced = replace(after.turns[A], is_overridden=True)
    after, _ = done(replace(after, turns={A: forced}))
    assert after.turns[A].state == "prepared"
    assert plan(after, NOW).approvals == (A,)


def test_a_failed_preparation_approves_nothing() -> None:
    """After a failed preparation nothing is approved, and the turn is still held: the VM may be
    half prepared when Azure starts the event.
    """
    preparing, _ = done(situation([event(A, "v1")]))
    failed = vm("v1", preparations=[preparation(A, "failed")])
    after, _ = done(replace(preparing, vms={**preparing.vms, "v1": failed}))
    assert (after.turns[A].state, after.turns[A].reason) == ("failed", "db-1 could not prepare")
    assert plan(after, NOW).approvals == ()


def test_a_preparation_that_has_not_ended_in_time_approves_nothing() -> None:
    """If the preparation has not ended thirty seconds before notBefore, nothing is approved."""
    preparing, _ = done(situation([event(A, "v1")]))
    assert done(preparing, SOON - 30)[0].turns[A].state == "preparing"
    late = done(preparing, SOON - 29)[0].turns[A]
    assert (late.state, late.reason) == ("failed", "db-1 did not prepare in time")


def test_a_vm_is_not_back_from_a_failed_approval_before_it_was_heard() -> None:
    """A VM is not back from a failed approval before it is heard again: Azure may have taken it by
    an approval whose answer was lost.
    """
    plain = vm("v1", prepares=False, heard_at=NOW)
    failed = replace(turn_of(A, "v1"), state="failed", since=NOW + 70)
    waiting = event(B, "v2", not_before=SOON + 60)
    reading = situation([event(A, "v1", approval="failed"), waiting], [plain], [failed])
    after, todo = done(reading, NOW + 70)
    assert (after.turns[A].vm_ids, todo.given) == ({"v1"}, ())
    heard = {**after.vms, "v1": replace(plain, heard_at=NOW + 75)}
    after, _ = done(replace(after, vms=heard), NOW + 75)
    after, _ = done(after, NOW + 85)
    assert after.turns[A].vm_ids == set()


def test_an_event_for_people_blocks_no_other_event() -> None:
    """An event that is left to people, because no `approve` matches or a VM is not heard, blocks no
    other event.
    """
    strange = event(A, "v1", unknown_names=("db-9",), not_before=NOW + 100)
    todo = plan(situation([strange, event(B, "v2")]), NOW)
    assert todo.given == (B,)
    assert todo.waiting[A].reason == "the console does not know db-9"
    silent = plan(situation([event(A, "v1")], [vm("v1", contact="silent")]), NOW)
    assert silent.waiting[A].reason == "the console does not hear db-1"
    manual = plan(situation([event(A, "v1")], (), (), settings(approve=None)), NOW)
    assert (manual.given, manual.waiting[A].needs_people) == ((), True)


def test_an_event_in_several_groups_goes_by_itself_only_if_all_approve_it() -> None:
    """An event of several groups is approved without a person only if all of them approve it; the
    reason names the group that does not.
    """
    both = frozenset({"etcd", "rack"})
    reading = situation(
        [event(A, "v1")],
        [vm("v1", groups=both)],
        (),
        settings(),
        settings(name="rack", approve=None),
    )
    assert plan(reading, NOW).waiting[A].reason == "rack leaves it to people"


def test_an_event_that_names_too_many_never_gets_a_turn() -> None:
    """An event that names more VMs than may be away is shown as forced from the start, with the
    reason, and blocks nothing.
    """
    reading = situation([event(A, "v1", "v2"), event(B, "v3", not_before=SOON + 9)])
    waiting, todo = done(reading)
    assert todo.given == (B,)
    forced = done(waiting)[0].turns[A]
    assert forced.state == "forced"
    assert forced.reason == "it names more VMs of etcd than the 1 that may be away"


def test_what_azure_starts_without_a_turn_is_overridden() -> None:
    """The VM of an event that Azure starts without a turn counts as away, and the others wait."""
    waiting, _ = done(situation([event(A, "v1"), event(B, "v2", not_before=SOON + 1)]))
    started = event(B, "v2", status="Started")
    after, _ = done(replace(waiting, events={**waiting.events, B: started}))
    assert after.turns[B].state == "forced"
    assert {each.why for each in away_by_group(after)["etcd"].values()} == {"turn", "started"}


def test_a_turn_ends_once_its_vm_is_back() -> None:
    """A turn ends once its event is over, its VM was heard since and has recovered, and `rest` has
    passed.
    """
    turn = turn_of(A, "v1")
    over = situation(
        (), [vm("v1", preparations=[preparation(A, "prepared")])], [turn], settings(rest=60)
    )
    over, _ = done(over, NOW + 10)
    assert over.turns[A].over_at == NOW + 10
    assert A in done(over, NOW + 20)[0].turns
    back = vm("v1", heard_at=NOW + 30, preparations=[preparation(A, "recovered", NOW + 30)])
    resting, _ = done(replace(over, vms={**over.vms, "v1": back}), NOW + 30)
    assert done(resting, NOW + 89)[0].turns.keys() == {A}
    assert done(resting, NOW + 90)[0].turns == {}


def test_a_vm_that_prepares_nothing_rests_from_its_return_on() -> None:
    """The rest of a VM that prepares nothing begins when it is heard again, although a peer
    reported the end long before.
    """
    turn = replace(turn_of(A, "v1"), over_at=NOW)
    reading = situation((), [vm("v1", heard_at=NOW + 600)], [turn], settings(rest=300))
    resting, _ = done(reading, NOW + 600)
    assert done(resting, NOW + 899)[0].turns.keys() == {A}
    assert done(resting, NOW + 900)[0].turns == {}


def test_a_peer_alone_ends_no_turn() -> None:
    """A peer's report that the event is over ends no turn while the VM was not heard since."""
    over, _ = done(situation((), [vm("v1", prepares=False)], [turn_of(A, "v1")]), NOW + 10)
    assert done(over, NOW + 700)[0].turns[A].state == "away"
    heard = replace(over, vms={**over.vms, "v1": vm("v1", prepares=False, heard_at=NOW + 11)})
    assert done(heard, NOW + 11)[0].turns == {}


def test_a_turn_that_does_not_end_is_stuck_after_an_hour() -> None:
    """A turn that has not ended an hour after its event is stuck. It is still held, and ends if its
    VM comes back.
    """
    over, _ = done(situation((), (), [turn_of(A, "v1")]), NOW + 10)
    lost = replace(over, vms={**over.vms, "v1": vm("v1", contact="silent")})
    stuck, _ = done(lost, NOW + 10 + STUCK_SECONDS)
    assert stuck.turns[A].state == "stuck"
    assert away_by_group(stuck)["etcd"].keys() == {"v1"}
    later = NOW + STUCK_SECONDS + 99
    back = replace(stuck, vms={**stuck.vms, "v1": vm("v1", prepares=False, heard_at=later)})
    assert done(back, later)[0].turns == {}


def test_a_turn_whose_vm_begins_its_rest_again_and_again_is_stuck() -> None:
    """A VM whose bridge ends and begins again before its rest is over does not rest for ever: an
    hour and a rest after the event its turn is stuck.
    """
    rules = settings(rest=60)
    reading, _ = done(situation((), (), [turn_of(A, "v1")], rules), NOW)
    for run in range(1, 75):
        now = NOW + run * 50
        back = vm("v1", heard_at=now, instance_id=f"run-{run}")
        reading, _ = done(replace(reading, vms={**reading.vms, "v1": back}), now)
        assert reading.turns[A].state == ("away" if now < NOW + 3660 else "stuck")


def test_a_turn_whose_vms_rest_is_not_stuck() -> None:
    """A turn whose VM rests is not stuck; one whose VM has gone silent during its rest is."""
    rules = settings(rest=7200)
    over, _ = done(situation((), (), [turn_of(A, "v1")], rules), NOW + 10)
    for back_at in (NOW + 60, NOW + 10 + STUCK_SECONDS):
        back = replace(over, vms={**over.vms, "v1": vm("v1", heard_at=back_at)})
        resting, _ = done(back, back_at)
        assert resting.turns[A].state == "away"
        assert done(resting, back_at + 7199)[0].turns[A].state == "away"
        assert done(resting, back_at + 7200)[0].turns == {}
        gone = replace(resting, vms={**over.vms, "v1": vm("v1", contact="silent")})
        cleared, _ = done(gone, back_at + 4000)
        assert done(cleared, back_at + 4000)[0].turns[A].state == "stuck"


def test_a_vm_that_changes_its_group_stays_away_in_both() -> None:
    """A VM that changes its group while it holds a turn counts as away in both groups until it is
    back.
    """
    moved = vm("v1", groups=frozenset({"other"}))
    reading = situation((), [moved], [turn_of(A, "v1")], settings(), settings(name="other"))
    away = away_by_group(reading)
    assert (away["etcd"].keys(), away["other"].keys()) == ({"v1"}, {"v1"})


def test_an_event_that_changes_is_prepared_again() -> None:
    """A VM prepares again for an event that has changed; what it prepared before does not count."""
    ready = vm("v1", preparations=[preparation(A, "prepared")])
    turn = replace(turn_of(A, "v1"), state="prepared")
    changed = situation([event(A, "v1", fingerprint="a-2")], [ready], [turn])
    after, _ = done(changed)
    assert (after.turns[A].state, after.turns[A].fingerprint) == ("preparing", "a-2")
    assert plan(after, NOW).prepares == ((A, "v1"),)


def test_a_vm_that_a_changed_event_names_besides_joins_the_turn_within_the_budget() -> None:
    """A VM that a changed event names in addition is asked to prepare once there is room, and
    nothing is approved before that.
    """
    turn = replace(turn_of(A, "v1"), state="preparing")
    ready = vm("v1", preparations=[preparation(A, "prepared")])
    grown = event(A, "v1", "v2")
    full = situation([grown], [ready, vm("v3", contact="silent")], [turn], settings(at_most=2))
    after, _ = done(full)
    assert (after.turns[A].vm_ids, after.turns[A].state) == ({"v1"}, "preparing")
    room = situation([grown], [ready], [turn], settings(at_most=2))
    after, _ = done(room)
    assert after.turns[A].vm_ids == {"v1", "v2"}
    assert plan(after, NOW).prepares == ((A, "v2"),)


def test_a_changed_event_that_can_never_go_on_has_failed_with_the_reason() -> None:
    """If a changed event names more VMs than may be away, or one that the console does not know,
    its turn has failed, with the reason.
    """
    turn = replace(turn_of(A, "v1"), state="preparing")
    for grown, reason in (
        (event(A, "v1", "v2"), "it names more VMs of etcd than the 1 that may be away"),
        (event(A, "v1", unknown_names=("db-9",)), "the console does not know db-9"),
    ):
        after, _ = done(situation([replace(grown, fingerprint="a-2")], [], [turn]))
        assert (after.turns[A].state, after.turns[A].reason) == ("failed", reason)


def test_events_that_changed_do_not_wait_for_each_other() -> None:
    """If two changed events each name one VM more than there is room for, and none has prepared,
    the first one continues, and an event behind it does not take its room.
    """
    vms = [vm(f"v{number}") for number in range(1, 6)]
    turns = [replace(turn_of(key, name), state="preparing") for key, name in ((B, "v3"), (A, "v1"))]
    first, second = event(A, "v1", "v2"), event(B, "v3", "v4", not_before=SOON + 1)
    third = event(Z, "v5", not_before=SOON + 2)
    start = situation([first, second, third], vms, turns, settings(at_most=2))
    start = replace(start, groups=groups(settings(at_most=2), count=5))
    waits, todo = done(start)
    assert (waits.turns[A].vm_ids, waits.turns[B].vm_ids) == ({"v1"}, {"v3"})
    assert todo.prepares == ()
    later = NOW + ANSWER_SECONDS
    heard = {each.vm_id: replace(each, heard_at=later) for each in vms}
    reporting, _ = done(replace(waits, vms=heard), later)
    freed, todo = done(reporting, later + 10)
    assert (freed.turns[A].vm_ids, freed.turns[B].vm_ids) == (set(), set())
    assert todo.given == ()
    joined, todo = done(freed, later)
    assert (joined.turns[A].vm_ids, joined.turns[B].vm_ids) == ({"v1", "v2"}, set())
    assert todo.given == ()
    assert todo.waiting[Z].behind[-1] == B
    assert done(joined, later)[1].prepares == ((A, "v1"), (A, "v2"))


def test_a_persons_turn_fails_if_the_group_has_become_too_small_for_it() -> None:
    """If a group has become too small for an event that a person approved, its turn fails and no
    event waits behind it; what a person overrides continues.
    """
    turn = replace(turn_of(A, "v1"), state="preparing", actor="alice")
    both = [event(A, "v1", "v2"), event(B, "v3", not_before=SOON + 1)]
    after, _ = done(situation(both, (), [turn], settings()))
    assert after.turns[A].state == "failed"
    assert after.turns[A].reason == "it names more VMs of etcd than the 1 that may be away"
    forced = replace(turn, is_overridden=True)
    after, _ = done(situation(both, (), [forced], settings()))
    assert after.turns[A].state == "preparing"


def test_what_is_prepared_waits_for_a_vm_that_azure_has_taken() -> None:
    """In a group that became too small, a prepared event waits for a VM that Azure has taken,
    although that VM is prepared for a later event too.
    """
    ready = [vm("v1", preparations=[preparation(A, "prepared")])]
    ready += [vm("v2", preparations=[preparation(B, "prepared")])]
    turns = [replace(turn_of(key, name), state="prepared") for key, name in ((A, "v1"), (B, "v2"))]
    events = [event(A, "v1"), event(B, "v2", not_before=SOON + 1)]
    assert plan(situation(events, ready, turns), NOW).approvals == (A,)
    begun = event(Z, "v2", status="Started")
    assert plan(situation([*events, begun], ready, turns), NOW).approvals == ()
    other = turn_of(Z, "v2")
    released = replace(event(Z, "v2"), approval="open")
    approving = replace(other, state="approving")
    both = situation([*events, released], ready, [*turns, approving])
    assert plan(both, NOW).approvals == ()


def test_a_vm_that_a_changed_event_names_no_more_is_back_once_it_has_recovered() -> None:
    """A VM that a changed event no longer names is back once it has recovered; then the VM named in
    its place joins the turn.
    """
    turn = replace(turn_of(A, "v1"), state="preparing")
    moved = event(A, "v2")
    kept = situation([moved], [vm("v1", preparations=[preparation(A, "prepared")])], [turn])
    assert done(kept)[0].turns[A].vm_ids == {"v1"}
    freed = situation([moved], [vm("v1", preparations=[preparation(A, "recovered")])], [turn])
    after, _ = done(done(freed)[0])
    assert after.turns[A].vm_ids == {"v2"}


def test_a_vm_that_a_changed_event_names_no_more_rests_and_follows_no_command() -> None:
    """A VM that a changed event no longer names, and that has recovered from an earlier stay, rests
    only once its command has expired: the event may name it again before that.
    """
    turn = replace(turn_of(A, "v1"), state="preparing")
    recovered = vm("v1", preparations=[preparation(A, "recovered")])
    moved = situation([event(A, "v2")], [recovered], [turn], settings(rest=60))
    good = replace(moved, followed_until={A: NOW + 30})
    assert done(good, NOW + 29)[0].turns[A].vms[0].ready_at is None
    resting, _ = done(good, NOW + 30)
    assert done(resting, NOW + 89)[0].turns[A].vm_ids == {"v1"}
    back, _ = done(done(resting, NOW + 90)[0], NOW + 90)
    assert back.turns[A].vm_ids == {"v2"}


def test_a_vm_that_a_changed_event_names_no_more_is_back_only_once_it_is_heard() -> None:
    """A VM that a changed event no longer names is back only once it is heard, because it may have
    prepared for the former state and report that late.
    """
    turn = replace(turn_of(A, "v1"), state="preparing")
    late = NOW + ANSWER_SECONDS
    reading = situation([event(A, "v2")], (), [turn])
    assert done(reading, late)[0].turns[A].vm_ids == {"v1"}
    heard = replace(reading, vms={**reading.vms, "v1": vm("v1", heard_at=late)})
    reporting, _ = done(heard, late)
    assert done(reporting, late + 10)[0].turns[A].vm_ids == set()


def test_a_vm_that_crashes_while_it_rests_rests_again() -> None:
    """If a VM crashes while it rests, its rest begins again once it is back."""
    turn = replace(turn_of(A, "v1"), over_at=NOW)
    back = vm("v1", heard_at=NOW + 10)
    resting, _ = done(situation((), [back], [turn], settings(rest=60)), NOW + 10)
    gone = replace(resting, vms={**resting.vms, "v1": replace(back, contact="silent")})
    gone, _ = done(gone, NOW + 40)
    again = replace(back, heard_at=NOW + 80)
    again_resting, _ = done(replace(gone, vms={**gone.vms, "v1": again}), NOW + 80)
    assert done(again_resting, NOW + 139)[0].turns.keys() == {A}
    assert done(again_resting, NOW + 140)[0].turns == {}


def test_a_vm_whose_bridge_starts_again_while_it_rests_rests_again() -> None:
    """If a VM that rests is back from a crash before it was missed, its rest begins again with the
    new run of its bridge, once: what is told late of an earlier run, or twice, changes nothing.
    """
    turn = replace(turn_of(A, "v1"), over_at=NOW)
    heard = vm("v1", heard_at=NOW + 10, instance_id="run-1")
    facts, _ = done(situation((), [heard], [turn], settings(rest=60)), NOW + 10)
    for seconds, run in ((20, "run-1"), (40, "run-2"), (50, "run-1"), (60, "run-2"), (99, "run-1")):
        told = replace(heard, heard_at=NOW + seconds, instance_id=run)
        facts, _ = done(replace(facts, vms={**facts.vms, "v1": told}), NOW + seconds)
        assert facts.turns.keys() == {A}
    assert done(facts, NOW + 100)[0].turns == {}


def test_a_vm_whose_bridge_starts_again_and_again_rests_after_the_last_start() -> None:
    """Each new run of a bridge begins the rest of its VM again, however many there were."""
    turn = replace(turn_of(A, "v1"), over_at=NOW)
    facts = situation((), (), [turn], settings(rest=60))
    for start in range(30):
        now = NOW + 50 * start
        told = vm("v1", heard_at=now, instance_id=f"run-{start}")
        facts, _ = done(replace(facts, vms={**facts.vms, "v1": told}), now)
        assert len(facts.turns[A].vms[0].runs) <= 5
    assert done(facts, NOW + 50 * 29 + 59)[0].turns.keys() == {A}
    assert done(facts, NOW + 50 * 29 + 60)[0].turns == {}


def test_what_a_vm_outside_the_group_says_of_a_vm_that_is_heard_counts_for_nothing() -> None:
    """By the report of a VM outside its group, a heard VM is neither away nor asked to prepare; a
    member's report counts.
    """
    outside = vm("w9", groups=frozenset())
    invented = event(A, "v1", reported_by=frozenset(), shown_by="w9")
    reading = situation([invented, event(B, "v2")], [outside])
    todo = plan(reading, NOW)
    assert todo.given == (B,)
    assert todo.waiting[A].reason == "not reported by db-1"
    started = replace(invented, status="Started")
    assert away_by_group(situation([started], [outside]))["etcd"] == {}
    by_member = situation([replace(started, shown_by="v2")])
    assert set(away_by_group(by_member)["etcd"]) == {"v1"}


def test_a_vm_that_prepares_at_its_own_deadline_is_away() -> None:
    """A VM that prepares at its own deadline, without a command of the console, counts as away."""
    own = vm("v2", preparations=[preparation(Z, "preparing")])
    reading = situation([event(A, "v1")], [own])
    assert plan(reading, NOW).given == ()
    assert away_by_group(reading)["etcd"]["v2"].why == "preparing"


def test_a_vm_that_was_not_heard_since_its_event_was_due_may_be_gone() -> None:
    """A VM that was not heard since the notBefore of its event counts as away: it may have had no
    time to report the start.
    """
    due = event(A, "v1", is_left=True, not_before=NOW)
    reading = situation([due, event(B, "v2")], [vm("v1", heard_at=NOW - 10)])
    assert plan(reading, NOW - 1).given != ()
    assert plan(reading, NOW).given == ()
    heard = {**reading.vms, "v1": vm("v1", heard_at=NOW + 5)}
    assert plan(replace(reading, vms=heard), NOW + 6).given != ()


def test_while_the_console_learns_it_releases_nothing_beside_a_vm_that_may_be_gone() -> None:
    """While a member was not heard yet by a new console, no other VM is released; the member is not
    shown as away.
    """
    reading = situation([event(A, "v1")], [vm("v2", contact="learning")])
    assert plan(reading, NOW).given == ()
    assert away_by_group(reading)["etcd"] == {}


def turn_of(key: EventKey, vm_id: str) -> Turn:
    """Return a turn that one VM holds while its event has started."""
    start = situation([event(key, vm_id)])
    preparing, _ = done(start)
    started = {key: event(key, vm_id, status="Started")}
    away, _ = done(replace(preparing, events=started))
    return away.turns[key]


def failed(key: EventKey, since: float, *away: str) -> Turn:
    """Return a turn of a group whose VMs have not answered and still hold it."""
    vms = tuple(
        TurnVm(vm_id=vm_id, groups=frozenset({"etcd"}), unanswered_since=since - UNANSWERED_SECONDS)
        for vm_id in away
    )
    return Turn(
        event_key=key,
        fingerprint=f"{key.event_id}-1",
        state="failed",
        since=since,
        actor="group:etcd",
        vms=vms,
    )


def test_the_turn_that_failed_first_is_tried_again_first() -> None:
    """Of two turns that failed, the one that failed first is tried again first, whichever event
    comes first.
    """
    events = [event(A, "v1"), event(B, "v2", not_before=SOON + 1)]
    turns = [failed(A, NOW - 400), failed(B, NOW - 500)]
    after, _ = done(situation(events, (), turns))
    assert (after.turns[A].state, after.turns[B].state) == ("failed", "preparing")


def test_what_can_not_go_holds_up_no_other_try() -> None:
    """If one of two places is taken by a stopped VM, a waiting event of two VMs does not hold up
    the next try of an event of one VM.
    """
    events = [event(A, "v1"), event(B, "v2", "v3", not_before=SOON + 1)]
    stopped = vm("v4", contact="stopped")
    start = situation(events, [stopped], [failed(A, NOW - 400)], settings(at_most=2))
    after, todo = done(start)
    assert after.turns[A].state == "preparing"
    assert todo.waiting[B].needs_people is False


def test_what_waits_for_two_places_is_not_passed_by_one_retry_after_the_other() -> None:
    """While an event of two VMs waits for the VM of a failed turn, no other turn is tried again;
    once that VM is free, the event gets its turn.
    """
    late = event(Z, "v3", "v4", not_before=SOON + 1)
    events = [event(A, "v1"), event(B, "v2"), late]
    turns = [failed(A, NOW - 10, "v1"), failed(B, NOW - 400)]
    start = situation(events, [vm("v4")], turns, settings(at_most=2))
    after, todo = done(start)
    assert (after.turns[B].state, todo.given) == ("failed", ())
    free = replace(after, turns={**after.turns, A: failed(A, NOW - 130)})
    _, todo = done(free)
    assert todo.given == (Z,)


def test_a_turn_whose_vms_are_drained_is_tried_again_before_what_waits() -> None:
    """A turn whose VM has prepared is tried again before the waiting events, because that VM is
    away until the event is over in any case.
    """
    drained = vm("v1", preparations=[replace(preparation(A, "preparing"), fingerprint="")])
    events = [event(A, "v1"), event(B, "v2", not_before=SOON + 1)]
    after, _ = done(situation(events, [drained], [failed(A, NOW - 400, "v1")]))
    assert after.turns[A].state == "preparing"


def test_a_turn_that_is_taken_again_keeps_the_groups_in_which_its_vm_is_away() -> None:
    """A VM that has changed group while it is away counts in both groups after its turn is taken
    again.
    """
    turn = replace(turn_of(A, "v1"), state="failed")
    moved_vm = vm("v1", groups=frozenset({"rack"}))
    facts = situation([event(A, "v1")], [moved_vm], [turn], settings(), settings(name="rack"))
    again = give_turn(turn, facts.events[A], facts, NOW, actor="alice")
    assert again.vms[0].groups == {"etcd", "rack"}
