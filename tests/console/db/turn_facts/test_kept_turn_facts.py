"""The facts of turns that pages and the worker share."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.console.intake import Intake
from support.console.records import FakeVm

from console.config.groups import GroupSettings
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.db.turn_facts.kept_turn_facts import KeptTurnFacts
from console.db.turn_facts.turn_facts import TurnSettings
from console.turns.facts import TurnFacts
from console.turns.groups import Grouping


@pytest.fixture
def kept() -> KeptTurnFacts:
    """The reading of a console with one group of all VMs."""
    return KeptTurnFacts(TurnSettings(grouping=Grouping([GroupSettings(name="all")])))


def _seen(intake: Intake, kept: KeptTurnFacts) -> TurnFacts:
    with intake.snapshots.open() as snapshot:
        return kept.facts_for(snapshot)


def _shown(intake: Intake, kept: KeptTurnFacts) -> TurnFacts:
    with intake.snapshots.open() as snapshot:
        return kept.facts_to_show(snapshot)


def _in_step(intake: Intake, kept: KeptTurnFacts) -> TurnFacts:
    with write_to(intake.database) as (connection, _change_number):
        return kept.facts_for_step(intake.snapshots.of(connection))


def test_a_heartbeat_causes_no_new_read_within_a_second(
    database: Database, kept: KeptTurnFacts
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


def test_a_page_shows_what_was_read_within_two_seconds(
    database: Database, kept: KeptTurnFacts
) -> None:
    """A page shows for two seconds what the worker has read, if nothing about turns was written."""
    intake, vm = Intake(database), FakeVm(name="db-0")
    intake.take(vm.heartbeat(now=intake.now))
    first = _seen(intake, kept)
    intake.now += timedelta(seconds=1.9)
    assert _shown(intake, kept) is first
    intake.now += timedelta(seconds=0.1)
    assert _shown(intake, kept) is not first


def test_a_step_follows_from_what_the_check_for_work_has_read(
    database: Database, kept: KeptTurnFacts
) -> None:
    """A step reads again what the check for work has read only if it has changed, or is old."""
    intake, vm = Intake(database), FakeVm(name="db-0")
    intake.take(vm.heartbeat(now=intake.now))
    checked = _seen(intake, kept)
    intake.now += timedelta(seconds=0.4)
    assert _in_step(intake, kept) is checked
    intake.now += timedelta(seconds=0.1)
    assert _in_step(intake, kept) is not checked
    checked = _seen(intake, kept)
    intake.take(vm.event("E-1", now=intake.now))
    assert [each.event_id for each in _in_step(intake, kept).events] == ["E-1"]


@pytest.mark.parametrize("is_shown", [True, False])
def test_what_is_said_of_an_event_is_seen_at_once(
    database: Database, kept: KeptTurnFacts, *, is_shown: bool
) -> None:
    """After a report about an event, an answer never shows what was read before it."""
    read = _shown if is_shown else _seen
    intake, vm = Intake(database), FakeVm(name="db-0")
    intake.take(vm.heartbeat(now=intake.now))
    assert not read(intake, kept).events
    intake.take(vm.event("E-1", now=intake.now))
    assert [each.event_id for each in read(intake, kept).events] == ["E-1"]
    intake.take(vm.event("E-1", transition="ended", now=intake.now))
    assert not read(intake, kept).events
