"""The events that a search finds by the names that they list, for few and for many VMs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.console.intake import NOW, Intake
from support.console.records import FakeVm

from console.db.connection.transactions import write_to
from console.db.decisions.decision_rows import insert_decision
from console.db.events import event_history, event_lists
from console.db.events.event_filters import WantedEvents
from console.db.events.event_history import Total
from console.fleet.values.decision import Decision

WANTED = (
    (WantedEvents(tag="role:db"), "tag"),
    (WantedEvents(q="tag=role:db"), "search"),
    (WantedEvents(q="db-*"), "pattern"),
)


def found(intake: Intake, wanted: WantedEvents, *, sort: str = "at") -> list[tuple[str, str]]:
    """Return ids and scopes, which must be the same in the history and in the lists of open and
    ended events.
    """
    with intake.snapshots.open() as snapshot:
        past, total = snapshot.event_history.sorted_events(
            wanted, sort=sort, descending=True, limit=100
        )
        keys = {each.event.key for each in past}
        assert total == Total(number=len(past))
        assert snapshot.event_history.count_events(wanted) == len(past)
        listed = [
            *snapshot.event_lists.open_events(wanted),
            *snapshot.event_lists.ended_events(wanted),
        ]
        assert {each.event.key for each in listed} == keys
    return sorted(keys)


@pytest.mark.parametrize("others", [0, 40], ids=["most VMs", "few VMs"])
@pytest.mark.parametrize("wanted", [each for each, _ in WANTED], ids=[name for _, name in WANTED])
def test_the_events_of_a_tag_or_a_pattern_are_found(
    intake: Intake, wanted: WantedEvents, others: int
) -> None:
    """A search by tag or pattern finds the same events for many VMs and for few; a name or an id of
    another scope finds none.
    """
    tags = {"role": "db"}
    db, peer = FakeVm(name="db-1", tags=tags), FakeVm(name="db-2", tags=tags)
    web = FakeVm(name="web-1", tags={"role": "web"})
    intake.take(*(FakeVm(name=f"other-{n}").heartbeat(now=NOW) for n in range(others)))
    intake.take(db.event("E-OVER", now=NOW), db.event("E-OVER", transition="ended", now=NOW))
    intake.take(peer.heartbeat(now=NOW), web.event("E-BOTH", resources=["web-1", "db-2"], now=NOW))
    intake.take(web.event("E-WEB", now=NOW))
    elsewhere = FakeVm(name="web-9", group="group-2", tags={"role": "web"})
    intake.take(elsewhere.event("E-OVER", now=NOW))
    of_group = "sub-1/group-1"
    assert found(intake, wanted) == [("E-BOTH", of_group), ("E-OVER", of_group)]
    assert found(intake, wanted, sort="status") == found(intake, wanted)


@pytest.mark.parametrize("others", [0, 40], ids=["most VMs", "few VMs"])
def test_a_tag_is_looked_for_where_any_agreeing_reporter_is(intake: Intake, others: int) -> None:
    """A tag finds an event although the reporter that shows it is of another scale set than the
    named VM.
    """
    mate = FakeVm(name="other", scale_set="set-2")
    vm = FakeVm(name="db-1", scale_set="set-1", tags={"role": "db"})
    intake.take(*(FakeVm(name=f"other-{n}").heartbeat(now=NOW) for n in range(others)))
    intake.take(mate.event("E", resources=["db-1"], now=NOW))
    assert found(intake, WantedEvents(vm=vm.vm_id)) == []
    intake.take(vm.event("E", now=NOW))
    for wanted in (WantedEvents(tag="role:db"), WantedEvents(vm=vm.vm_id)):
        assert found(intake, wanted) == [("E", "sub-1/group-1")]


def test_events_of_most_vms_are_not_counted_to_the_end(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a filter that most events match, the answer says that there are more, and every page is
    there.
    """
    monkeypatch.setattr(event_history, "COUNTED", 3)
    vm = FakeVm(tags={"role": "db"})
    intake.take(*(vm.event(f"E-{number}", now=NOW) for number in range(6)))
    wanted = WantedEvents(tag="role")
    with intake.snapshots.open() as snapshot:

        def page(skip: int) -> tuple[list[str], Total]:
            several, total = snapshot.event_history.sorted_events(
                wanted, sort="at", descending=False, limit=2, skip=skip
            )
            return [each.event.event_id for each in several], total

        assert page(0) == (["E-0", "E-1"], Total(number=3, has_more=True))
        assert page(2) == (["E-2", "E-3"], Total(number=6))
        assert page(4) == (["E-4", "E-5"], Total(number=6))
        assert page(6) == ([], Total(number=0))


@pytest.mark.parametrize(("signs", "sizes"), [(1_000_000, [4, 2]), (1, [1, 1, 1, 1, 1, 1])])
def test_a_page_holds_fewer_events_if_they_name_thousands_of_vms(
    intake: Intake, monkeypatch: pytest.MonkeyPatch, signs: int, sizes: list[int]
) -> None:
    """A page has fewer events, but at least one, if they name thousands of VMs; every event is on
    one page.
    """
    monkeypatch.setattr(event_lists, "_MAX_SIGNS", signs)
    vm = FakeVm()
    for number in range(6):
        at = NOW + timedelta(seconds=number)
        intake.take(vm.event(f"E-{number}", transition="ended", now=at))
    shown: list[str] = []
    shown_at_once: list[int] = []
    after, has_more = None, True
    with intake.snapshots.open() as snapshot:
        while has_more:
            found, has_more = snapshot.event_lists.page_of_ended(
                WantedEvents(), limit=4, after=after
            )
            last = found[-1].event
            after = (last.shown_at, *last.key)
            shown += [each.event.event_id for each in found]
            shown_at_once.append(len(found))
    assert shown == [f"E-{number}" for number in reversed(range(6))]
    assert shown_at_once == sizes


def test_events_that_an_order_puts_last_are_found(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that half the VMs match finds events that come last in the order."""
    monkeypatch.setattr(event_history, "COUNTED", 2)
    monkeypatch.setattr(event_history, "_AHEAD", 1)
    for name, role in (("app", "web"), ("db", "db")):
        vms = [FakeVm(name=f"{name}-{number}", tags={"role": role}) for number in range(5)]
        intake.take(*(vm.event(f"E-{vm.name}", now=NOW) for vm in vms))
    wanted = WantedEvents(tag="role:db")
    with intake.snapshots.open() as snapshot:
        for descending, first, total in (
            (True, ["E-db-4", "E-db-3"], Total(number=2, has_more=True)),
            (False, ["E-db-0", "E-db-1"], Total(number=5)),
        ):
            several, number = snapshot.event_history.sorted_events(
                wanted, sort="vms", descending=descending, limit=2
            )
            assert [each.event.event_id for each in several] == first
            assert number == total


@pytest.mark.parametrize("wanted", [WantedEvents(), WantedEvents(q="e-")], ids=["all", "some"])
def test_what_is_not_known_comes_last_in_both_directions(
    intake: Intake, wanted: WantedEvents
) -> None:
    """Events without a value come last in both directions."""
    vm = FakeVm()
    intake.take(*(vm.event(f"E-{number}", now=NOW) for number in range(1, 7)))
    for event_id, actor in (("E-2", "zoe"), ("E-3", "0-bot"), ("E-5", "zoe"), ("E-6", "anna")):
        intake.take(vm.receipt(event_id, "confirmed", jti=f"jti-{event_id}", actor=actor, now=NOW))
    intake.take(vm.receipt("E-4", "rejected", actor="anna", now=NOW))
    intake.take(vm.event("E-3", transition="started", now=NOW))
    with write_to(intake.database) as (connection, change_number):
        decision = Decision(
            id="decision-1",
            event_id="E-6",
            scope="sub-1/group-1",
            fingerprint="",
            kind="approve",
            state="over",
            actor="mia",
            reason="",
            at=NOW.timestamp(),
        )
        insert_decision(connection, decision, change_number)

    def order(sort: str, *, descending: bool) -> list[str]:
        with intake.snapshots.open() as snapshot:
            found, total = snapshot.event_history.sorted_events(
                wanted, sort=sort, descending=descending, limit=100
            )
        assert total == Total(number=6)
        return [each.event.event_id for each in found]

    assert order("by", descending=False) == ["E-3", "E-6", "E-2", "E-5", "E-1", "E-4"]
    assert order("by", descending=True) == ["E-2", "E-5", "E-6", "E-3", "E-1", "E-4"]
    for descending in (False, True):
        assert order("started", descending=descending)[0] == "E-3"
        assert order("started", descending=descending)[1:] == ["E-1", "E-2", "E-4", "E-5", "E-6"]
