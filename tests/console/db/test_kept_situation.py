"""The reading of turns that answers share."""

from datetime import timedelta

import pytest
from support.console.intake import Intake
from support.console.records import FakeVm

from console.config.groups import GroupSettings
from console.db.kept_situation import KeptSituation
from console.db.opening import Database
from console.turns.groups import Grouping
from console.turns.situation import TurnSituation


@pytest.fixture
def kept() -> KeptSituation:
    """The reading of a console with one group of all VMs."""
    return KeptSituation(Grouping([GroupSettings(name="all")]))


def _seen(intake: Intake, kept: KeptSituation) -> TurnSituation:
    with intake.snapshots.open() as snapshot:
        return kept.seen_in(snapshot)


def test_a_heartbeat_causes_no_new_reading_within_a_second(
    database: Database, kept: KeptSituation
) -> None:
    """Turns are not read again because of a heartbeat, which a large fleet sends all the time. They
    are read again a second later, and if the clock is set back.
    """
    intake, vm = Intake(database), FakeVm(name="db-0")
    intake.take(vm.heartbeat(now=intake.now))
    first = _seen(intake, kept)
    intake.now += timedelta(seconds=0.5)
    intake.take(vm.heartbeat(now=intake.now))
    assert _seen(intake, kept) is first
    intake.now += timedelta(seconds=0.5)
    later = _seen(intake, kept)
    assert later is not first
    intake.now -= timedelta(seconds=0.5)
    assert _seen(intake, kept) is not later


def test_what_is_said_of_an_event_is_seen_at_once(database: Database, kept: KeptSituation) -> None:
    """After a report about an event, an answer never shows what was read before it."""
    intake, vm = Intake(database), FakeVm(name="db-0")
    intake.take(vm.heartbeat(now=intake.now))
    assert not _seen(intake, kept).events
    intake.take(vm.event("E-1", now=intake.now))
    assert [each.event_id for each in _seen(intake, kept).events] == ["E-1"]
    intake.take(vm.event("E-1", transition="ended", now=intake.now))
    assert not _seen(intake, kept).events
