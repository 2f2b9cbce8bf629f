"""The identity by which the fleet knows a VM: its first contact or an admin sets it, and a change
is a conflict.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from support.console.intake import NOW, Intake
from support.console.records import FakeVm

from console.audit import audit_log
from console.config.groups import GroupSettings
from console.db.events.event_filters import WantedEvents
from console.db.vms.expectations import expectations_of
from console.db.vms.grouping import groups_now
from console.errors import RefusedError
from console.records.parse import parse_state, parse_status
from console.turns.groups import Grouping
from console.vms.acceptance import accept
from console.vms.enrolment import enroll
from console.vms.retirement import retire

_ARM = "/subscriptions/sub-1/resourceGroups/group-1/providers/Microsoft.Compute"


def again(vm: FakeVm, **changed: object) -> FakeVm:
    """Return the same VM, which reports another identity from now on."""
    return replace(vm, revisions=dict(vm.revisions), **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changed",
    [{"name": "web-9"}, {"group": "group-9"}, {"scale_set": "set"}, {"site": "zurich"}],
    ids=["name", "group", "scale set", "site"],
)
def test_a_vm_that_reports_another_identity_keeps_its_name(
    intake: Intake, changed: dict[str, object]
) -> None:
    """A VM that reports another identity keeps its own until an admin accepts the new one; the
    conflict ends if it reports the old one again.
    """
    vm = FakeVm()
    intake.take(vm.event("E", now=NOW))
    before = intake.vm(vm).vm
    other = again(vm, **changed)
    intake.let_pass(5)
    intake.take(other.heartbeat(now=intake.now))
    after = intake.vm(vm).vm
    assert (after.known_as, after.conflict_at) == (before.known_as, intake.now.timestamp())
    assert after.reported_as is not None
    assert intake.event().event.scope == "sub-1/group-1"
    back = again(vm, sequence=other.sequence)
    intake.take(back.heartbeat(now=intake.now))
    assert intake.vm(vm).vm.conflict_at is None
    intake.take(again(other, sequence=back.sequence).heartbeat(now=intake.now))
    found = accept(intake.database, [vm.vm_id], actor="admin", now=intake.now.timestamp())
    accepted = intake.vm(vm).vm
    assert list(found) == [vm.vm_id]
    assert (accepted.known_as, accepted.conflict_at) == (after.reported_as, None)
    assert intake.event().event.scope == accepted.scope
    assert intake.event().event.sites == (accepted.site,)
    rows = audit_log.read_rows(intake.database.reading)
    assert [(row.action, row.actor) for row in rows] == [("vm_accepted", "admin")]
    assert accept(intake.database, [vm.vm_id], actor="admin", now=intake.now.timestamp()) == {}


def test_what_was_seen_is_accepted_and_nothing_else(intake: Intake) -> None:
    """An identity is accepted only if it is still the one that the admin saw."""
    vm = FakeVm()
    intake.take(vm.heartbeat(now=NOW))
    intake.take(again(vm, name="web-2").heartbeat(now=NOW))
    seen = intake.vm(vm).vm.conflict_id
    assert seen is not None
    intake.take(again(vm, name="web-3", sequence=2).heartbeat(now=NOW))
    conflicts = {vm.vm_id: seen}
    assert not accept(intake.database, [vm.vm_id], actor="a", now=1.0, conflicts=conflicts)
    assert intake.vm(vm).vm.name == "web-1"


def test_azure_writes_a_name_in_any_case(intake: Intake) -> None:
    """A name in another case, or a record without the scale set, is no conflict."""
    vm = FakeVm(scale_set="set")
    intake.take(vm.heartbeat(now=NOW))
    intake.take(again(vm, name="WEB-1", group="GROUP-1").heartbeat(now=NOW))
    intake.take(again(vm, subscription=None, group=None, sequence=2).heartbeat(now=NOW))
    known = intake.vm(vm).vm
    assert (known.conflict_at, known.resource_group) == (None, "GROUP-1")
    assert known.scale_set == "set"


def test_a_status_before_the_first_record_settles_nothing_that_it_does_not_say(
    intake: Intake,
) -> None:
    """A retained status sets no scale set, so that the first record sets it."""
    vm = FakeVm(scale_set="set", site="zurich")
    status = parse_status(
        vm.status(), source="web", received_at=NOW.timestamp(), vm_id=vm.vm_id, site="zurich"
    )
    intake.hear(status)
    intake.take(vm.heartbeat(now=NOW))
    known = intake.vm(vm).vm
    assert (known.conflict_at, known.scale_set, known.site) == (None, "set", "zurich")


def test_the_scale_set_of_an_instance_is_known_from_its_status(intake: Intake) -> None:
    """The ARM id in a retained status gives the scale set of an instance before its first
    record.
    """
    mate, vm = FakeVm(name="set_1", scale_set="set"), FakeVm(name="set_2", scale_set="set")
    intake.take(mate.heartbeat(now=NOW))
    body = json.loads(vm.state(vm.event("E", resources=["set_1", "set_2"], now=NOW), now=NOW))
    body["vm"]["resourceId"] = f"{_ARM}/virtualMachineScaleSets/SET/virtualMachines/2"
    state = parse_state(
        json.dumps(body).encode(),
        source="web",
        received_at=NOW.timestamp(),
        vm_id=vm.vm_id,
        site="default",
    )
    intake.hear(state)
    assert set(intake.event().named) == {"set_1", "set_2"}
    intake.take(vm.heartbeat(now=NOW))
    assert (intake.vm(vm).vm.scale_set, intake.vm(vm).vm.conflict_at) == ("set", None)


def test_a_newcomer_with_the_name_of_a_heard_vm_is_withheld_it(intake: Intake) -> None:
    """A new VM with the name of a heard one does not get that name, and its reports are not those
    of the name.
    """
    web, newcomer = FakeVm(), FakeVm(vm_id="newcomer", stream="s")
    intake.take(web.event("E", now=NOW))
    intake.let_pass(5)
    intake.take(newcomer.event("E", transition="started", now=intake.now))
    assert intake.event().event.state == "scheduled"
    assert intake.event().named["web-1"].vm_id == web.vm_id
    assert intake.vm(newcomer).vm.withheld
    assert intake.vm(newcomer).vm.conflict_at is not None
    assert intake.vm(web).vm.conflict_at is None


@pytest.mark.parametrize("ends", ["silent", "stopped"])
def test_a_vm_that_was_made_again_has_its_name_once_the_old_one_is_gone(
    intake: Intake, ends: str
) -> None:
    """A VM that was made again under its name gets it once the old one is not there any more, with
    its earlier reports.
    """
    old, new = FakeVm(), FakeVm(vm_id="new", stream="s")
    intake.take(old.heartbeat(now=NOW))
    intake.let_pass(30)
    if ends == "stopped":
        intake.take(old.stopped(now=intake.now))
    intake.take(new.event("E", now=intake.now))
    assert intake.vm(new).vm.withheld
    for _ in range(4):
        intake.let_pass(60)
        intake.take(new.heartbeat(now=intake.now))
    assert (intake.vm(new).vm.withheld, intake.vm(new).vm.conflict_at) == (False, None)
    assert intake.event().named["web-1"].vm_id == "new"
    assert intake.event().shown.is_own


def test_a_name_returns_to_its_vm(intake: Intake) -> None:
    """A VM that took the name of a VM away for its event loses it when that one is back, unless an
    admin has accepted it.
    """
    web, liar = FakeVm(), FakeVm(vm_id="liar", stream="s")
    intake.take(web.event("E", now=NOW), web.stopped(now=NOW))
    intake.let_pass(200)
    intake.take(liar.event("E", transition="started", now=intake.now))
    assert not intake.vm(liar).vm.withheld
    intake.let_pass(60)
    intake.take(web.started(now=intake.now))
    assert (intake.vm(web).vm.withheld, intake.vm(liar).vm.withheld) == (False, True)
    assert intake.event().event.state == "scheduled"
    assert intake.event().named["web-1"].vm_id == web.vm_id
    found = accept(intake.database, ["liar"], actor="admin", now=intake.now.timestamp())
    assert found
    assert (intake.vm(web).vm.withheld, intake.vm(liar).vm.withheld) == (True, False)
    intake.let_pass(30)
    intake.take(web.heartbeat(now=intake.now))
    assert intake.vm(web).vm.withheld


def test_two_newcomers_with_one_name_in_one_transaction(intake: Intake) -> None:
    """Of two new VMs with one name in a transaction, the first one gets it."""
    one, two = FakeVm(vm_id="a", stream="a"), FakeVm(vm_id="b", stream="b")
    intake.take(one.heartbeat(now=NOW), two.heartbeat(now=NOW))
    assert (intake.vm(one).vm.withheld, intake.vm(two).vm.withheld) == (False, True)


def test_what_an_admin_says_at_enrolment_counts(intake: Intake) -> None:
    """The identity of an enrolment counts before and after the first contact, and before a namesake
    that was there first.
    """
    first, vm = FakeVm(vm_id="first", stream="f"), FakeVm(site="zurich")
    intake.take(first.heartbeat(now=NOW))
    bound = {vm.vm_id: f"{_ARM}/virtualMachines/web-1"}
    enroll(
        intake.database,
        [vm.vm_id],
        actor="admin",
        now=NOW.timestamp(),
        resource_ids=bound,
        site="zurich",
    )
    intake.let_pass(5)
    intake.take(again(vm, site="default", name="web-7").heartbeat(now=intake.now))
    known = intake.vm(vm).vm
    assert (known.name, known.site, known.withheld) == ("web-1", "zurich", False)
    assert known.reported_as is not None
    assert intake.vm(first).vm.withheld
    intake.take(again(vm, sequence=1).heartbeat(now=intake.now))
    assert intake.vm(vm).vm.conflict_at is None
    moved = {vm.vm_id: f"{_ARM.replace('group-1', 'group-2')}/virtualMachines/web-1"}
    enroll(intake.database, [vm.vm_id], actor="admin", now=2e9, resource_ids=moved)
    assert (intake.vm(vm).vm.resource_group, intake.vm(vm).vm.site) == ("group-2", "zurich")
    intake.take(again(vm, sequence=2).heartbeat(now=intake.now))
    assert intake.vm(vm).vm.reported_as is not None


def test_a_tag_that_an_admin_gave_counts(intake: Intake) -> None:
    """A tag of an enrolment replaces the VM's own, before and after the first contact; an empty one
    removes it.
    """
    vm = FakeVm(tags={"service": "web", "team": "a"})

    def give(**tags: str) -> None:
        enroll(intake.database, [vm.vm_id], actor="admin", now=1.0, tags=tags)

    give(service="db")
    intake.take(vm.heartbeat(now=NOW))
    assert intake.vm(vm).vm.tags == {"service": "db", "team": "a"}
    give(role="replica")
    assert intake.vm(vm).vm.tags == {"service": "db", "team": "a", "role": "replica"}
    intake.let_pass(5)
    intake.take(vm.heartbeat(now=intake.now))
    assert intake.vm(vm).vm.tags == {"service": "db", "team": "a", "role": "replica"}
    give(service="")
    assert intake.vm(vm).vm.tags == {"service": "web", "team": "a", "role": "replica"}
    give(Team="b")
    assert intake.vm(vm).vm.tags == {"service": "web", "Team": "b", "role": "replica"}
    give(Team="c", role="")
    give(team="")
    assert intake.vm(vm).vm.tags == {"service": "web", "team": "a"}
    assert intake.vm(vm).vm.conflict_at is None


def test_a_tag_that_an_admin_gave_decides_about_the_group(intake: Intake) -> None:
    """A VM that reports another tag than its enrolment has is no member of that tag's group."""
    grouping = Grouping([GroupSettings(name="db", match={"tag:service": ["db"]})])
    vm, other = FakeVm(tags={"service": "web"}), FakeVm(vm_id="o", name="o", stream="o")
    enroll(intake.database, [vm.vm_id], actor="admin", now=1.0, tags={"service": "db"})
    enroll(intake.database, ["o"], actor="admin", now=1.0, tags={"service": "web"})
    intake.take(vm.heartbeat(now=NOW), replace(other, tags={"service": "db"}).heartbeat(now=NOW))
    with intake.database.reading.begin() as connection:
        assert groups_now(connection, grouping)["db"].size == 1


@pytest.mark.parametrize("tags", [{"": "db"}, {"service": "d\nb"}, {"service": "x" * 257}])
def test_an_invalid_tag_is_refused(intake: Intake, tags: dict[str, str]) -> None:
    """An invalid tag is refused with a sentence that says what a tag is."""
    with pytest.raises(RefusedError, match="is not a tag"):
        enroll(intake.database, ["vm-1"], actor="admin", now=1.0, tags=tags)


def test_an_instance_of_a_scale_set_is_enrolled_without_its_name(intake: Intake) -> None:
    """The ARM id of an instance has a number; its first record has the name."""
    vm = FakeVm(name="set_0", scale_set="set")
    bound = {vm.vm_id: f"{_ARM}/virtualMachineScaleSets/set/virtualMachines/0"}
    enroll(intake.database, [vm.vm_id], actor="admin", now=1.0, resource_ids=bound)
    intake.take(vm.heartbeat(now=NOW))
    known = intake.vm(vm).vm
    assert (known.name, known.scale_set, known.conflict_at) == ("set_0", "set", None)


def test_a_retired_vm_keeps_no_name_from_others(intake: Intake) -> None:
    """A new VM gets the name of a retired one."""
    old, new = FakeVm(), FakeVm(vm_id="new", stream="s")
    intake.take(old.heartbeat(now=NOW))
    retire(intake.database, [old.vm_id], actor="a", reason="r", now=NOW.timestamp())
    intake.take(new.heartbeat(now=NOW))
    assert not intake.vm(new).vm.withheld


def test_names_are_looked_for_where_any_agreeing_reporter_is(intake: Intake) -> None:
    """The names of an event are found in the scale sets of all reporters that agree."""
    one, two = FakeVm(name="a-1", scale_set="set-a"), FakeVm(name="b-1", scale_set="set-b")
    silent, mate = FakeVm(name="c-1", scale_set="set-c"), FakeVm(name="c-2", scale_set="set-c")
    plain = FakeVm(name="plain")
    every = (one, two, silent, mate, plain)
    intake.take(*(vm.heartbeat(now=NOW) for vm in every))
    names = ["a-1", "b-1", "c-1"]
    for vm in (one, two, mate, plain):
        intake.take(vm.event("E", resources=names, now=intake.now))
        intake.let_pass(1)
    found = {name: each.vm_id for name, each in intake.event().named.items()}
    assert found == {vm.name: vm.vm_id for vm in (one, two, silent)}
    with intake.snapshots.open() as snapshot:
        expected = expectations_of(snapshot.connection, [vm.vm_id for vm in every])
        assert set(expected) == {vm.vm_id for vm in (one, two, silent)}
        found_by_id = snapshot.event_lists.open_events(WantedEvents(vm=silent.vm_id))
        assert [each.event.event_id for each in found_by_id] == ["E"]
    # Where the reporter is that shows it counts before elsewhere.
    shown_by = intake.event().event.shown_by
    shown_in = next(vm.scale_set for vm in every if vm.vm_id == shown_by)
    other = FakeVm(name="c-1", scale_set=shown_in)
    intake.take(other.heartbeat(now=intake.now))
    assert intake.event().named["c-1"].vm_id == other.vm_id


def test_names_are_not_looked_for_where_a_reporter_says_something_else(intake: Intake) -> None:
    """The names of an event are not searched in the scale set of a reporter that disagrees."""
    web, far = FakeVm(), FakeVm(name="far", scale_set="set")
    intake.take(web.event("E", resources=["web-1", "far"], now=NOW), far.heartbeat(now=NOW))
    intake.let_pass(1)
    intake.take(far.event("E", resources=["web-1", "far", "x"], now=intake.now))
    assert set(intake.event().named) == {"web-1"}
    intake.let_pass(1)
    again = FakeVm(name="far", scale_set="set", sequence=far.sequence, revisions={"E": 1})
    intake.take(again.event("E", resources=["web-1", "far"], now=intake.now))
    assert set(intake.event().named) == {"web-1", "far"}


def test_a_new_store_takes_no_name_of_a_vm_that_is_heard(intake: Intake) -> None:
    """A record of a new store counts whatever its time is, but the name in it is not taken from a
    VM that is heard.
    """
    web = FakeVm()
    liar = FakeVm(name="web-1", vm_id="liar", group=None)
    intake.take(web.event("E", now=NOW))
    intake.take(liar.heartbeat(now=NOW))
    moved = replace(liar, group=web.group, stream="another-stream")
    earlier = NOW - timedelta(seconds=30)
    intake.take(moved.event("E", transition="started", now=earlier))
    known = intake.event()
    assert (known.event.state, known.shown.vm_id) == ("scheduled", web.vm_id)
    with intake.snapshots.open() as snapshot:
        found = snapshot.vms.find_vm(moved.vm_id)
    assert found is not None
    assert found.vm.withheld


def test_a_vm_keeps_its_name_though_it_was_known_in_the_future(intake: Intake) -> None:
    """A VM that was first heard while the console's clock was a day ahead keeps its name from a VM
    that comes later.
    """
    known, newcomer = FakeVm(name="a"), FakeVm(name="a", vm_id="b")
    intake.now += timedelta(days=1)
    intake.take(known.heartbeat(now=intake.now))
    intake.now -= timedelta(days=1)
    intake.let_pass(1)
    intake.now += timedelta(minutes=1)
    intake.take(known.heartbeat(now=intake.now))
    intake.take(newcomer.heartbeat(now=intake.now))
    assert not intake.vm(known).vm.withheld
    assert intake.vm(newcomer).vm.withheld
