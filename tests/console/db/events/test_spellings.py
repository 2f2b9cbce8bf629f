"""Two spellings of an EventId are one event, as for the bridge, shown as it was written first."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.console.intake import Intake
from support.console.records import FakeVm

from console.db.events.event_filters import WantedEvents
from console.db.events.event_reports import latest_reports
from console.db.upkeep.retention import delete_before
from console.db.vms.expectations import expectations_of
from console.records.parse import parse_record, parse_state

UPPER = "602D9444-D2CD-49C7-8624-8643E7171297"


LOWER = UPPER.lower()


BOTH = ["a-1", "b-1"]


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "two batches"])
def test_an_id_in_two_cases_is_one_event(intake: Intake, *, at_once: bool) -> None:
    """Reports of two VMs with an id in two cases are one event with the records of both, and it
    ends once both report that.
    """
    a, b = FakeVm(name="a-1"), FakeVm(name="b-1")
    records = [
        a.event(UPPER, resources=BOTH, now=intake.now),
        b.event(LOWER, resources=BOTH, now=intake.now),
        a.event(UPPER, transition="ended", resources=BOTH, now=intake.now),
        b.event(LOWER, transition="ended", resources=BOTH, now=intake.now),
    ]
    for few in [records[:2], records[2:]] if at_once else [[each] for each in records]:
        intake.take(*few)
        with intake.snapshots.open() as snapshot:
            (known,) = snapshot.event_history.sorted_events(
                WantedEvents(), sort="at", descending=True, limit=9
            )[0]
            assert known.event.event_id == UPPER
    assert (known.seen_by, known.event.state) == (2, "ended")
    with intake.snapshots.open() as snapshot:
        assert {each.vm_id for each in latest_reports(snapshot.connection, known.event.key)} == {
            a.vm_id,
            b.vm_id,
        }
        assert snapshot.events.find_event(LOWER) == known


def test_what_a_vm_says_of_its_event_in_another_case_counts(intake: Intake) -> None:
    """Receipt, preparation and state document count in another case than a peer's; the same id in
    another scope is another event.
    """
    a, b, c = FakeVm(name="a-1"), FakeVm(name="b-1"), FakeVm(name="a-1", group="elsewhere")
    intake.take(a.event(UPPER, resources=["b-1"], now=intake.now))
    theirs = b.event(LOWER, now=intake.now)
    state = b.state(theirs, now=intake.now)
    at = intake.now.timestamp()
    intake.hear(parse_state(state, source="web", received_at=at, vm_id=b.vm_id, site="default"))
    prepared = {"evt": LOWER, "evh": "sha256:1", "sink": "p", "cause": "deadline", "reason": None}
    intake.take(
        b.receipt(LOWER, "accepted", now=intake.now),
        b.record("seb.preparation.v1", {**prepared, "state": "prepared"}, now=intake.now),
        c.event(LOWER, now=intake.now),
    )
    known = intake.event(UPPER, "sub-1/group-1")
    assert known.seen_by == 2
    assert [each.content.state for each in known.receipts] == ["accepted"]
    assert known.other_scopes == ("sub-1/elsewhere",)
    assert known.named["b-1"].content_hash is not None
    with intake.snapshots.open() as snapshot:
        assert expectations_of(snapshot.connection, [c.vm_id])[c.vm_id].events == (UPPER,)


def test_an_id_that_was_deleted_has_a_new_spelling(intake: Intake) -> None:
    """After the retention has deleted an event, its id gets the spelling of the next report."""
    vm = FakeVm(name="a-1")
    intake.take(
        vm.event(UPPER, now=intake.now), vm.event(UPPER, transition="ended", now=intake.now)
    )
    intake.now += timedelta(days=9)
    moment = intake.now.timestamp() - 86_400
    with intake.database.writing.begin() as connection:
        while delete_before(connection, moment, 100):
            pass
        delete_before(connection, moment, 100)
    intake.take(vm.event(LOWER, now=intake.now))
    assert intake.event(UPPER).event.event_id == LOWER


def test_two_rows_of_an_older_console_stay_two(intake: Intake) -> None:
    """Two rows of an older console with one id in two cases stay two events until the retention."""
    a, b, c = FakeVm(name="a-1"), FakeVm(name="b-1"), FakeVm(name="c-1")
    at = intake.now.timestamp()
    for vm, written in ((a, UPPER), (b, LOWER)):
        record = parse_record(
            vm.event(written, resources=BOTH, now=intake.now).body, source="web", received_at=at
        )
        intake.hear_as_written(record)
    intake.now += timedelta(seconds=5)
    for vm, written in ((a, UPPER), (b, LOWER), (c, "602d9444-D2CD-49C7-8624-8643E7171297")):
        intake.take(vm.event(written, resources=BOTH, now=intake.now))
    assert intake.event(UPPER).event.event_id == UPPER
    assert intake.event(LOWER).event.event_id == LOWER
    assert sorted(intake.event(each).seen_by for each in (UPPER, LOWER)) == [1, 2]
    b_says = b.event(LOWER, transition="ended", resources=BOTH, now=intake.now)
    intake.take(b_says)
    assert intake.event(LOWER).event.state == "ended"
    assert intake.event(UPPER).event.state == "scheduled"
