"""Groups over the stored past: what they would have approved, and who would have waited."""

from __future__ import annotations

from support.console.reported_event import reported

from console.config.groups import GroupSettings
from console.fleet.values.keys import EventKey
from console.turns.facts import EventFacts, VmFacts
from console.turns.groups import Member, groups_of
from console.turns.replay import ReplayedEvent, ReplayOutcome, replay

NOW = 1_800_000_000.0


def past(
    event_id: str, vm_id: str, *, at: float = 0, seconds: float = 60, **facts: object
) -> ReplayedEvent:
    """Return an event with a notice of ten minutes."""
    given = {"not_before": NOW + at + 600, **facts}
    event = EventFacts(
        key=EventKey(event_id, ""),
        fingerprint=event_id,
        reported=reported(event_id, event_type="Reboot"),
        status="Scheduled",
        named=frozenset({vm_id}),
        **given,  # type: ignore[arg-type]
    )
    return ReplayedEvent(facts=event, announced_at=NOW + at, seconds=seconds)


def played(
    *events: ReplayedEvent, has_said: bool = True, **keys: object
) -> dict[str, ReplayOutcome]:
    """Return what becomes of these events in a group of three."""
    rule = GroupSettings.model_validate({"name": "db", "approve": {}, **keys})
    members = [Member(vm_id=f"v{n}", name=f"db-{n}") for n in range(3)]
    vms = {
        each.vm_id: VmFacts(
            vm_id=each.vm_id,
            name=each.name,
            groups=frozenset({"db"}),
            contact="silent",
            heard_at=0.0,
            has_said=has_said,
        )
        for each in members
    }
    found = replay(groups_of([rule], members), vms, events)
    return {each.past.facts.event_id: each for each in found}


def test_the_second_waits_until_the_first_is_back() -> None:
    """Both events are approved; for the second one the replay says for which event it waited, and
    how long.
    """
    outcomes = played(past("A", "v0"), past("B", "v1", at=10))
    assert outcomes["A"].waited == 0
    assert outcomes["B"].waited == 50
    assert outcomes["B"].waited_for == {EventKey("A", "")}


def test_what_nobody_approves_starts_at_its_time() -> None:
    """An event that the group does not approve, because it has no `approve` or another type, starts
    at its time.
    """
    assert played(past("A", "v0"), approve=None)["A"].approved_at is None
    outcome = played(past("A", "v0"), approve={"event_type": ["Redeploy"]})["A"]
    assert (outcome.approved_at, outcome.reason) == (None, "db leaves it to people")


def test_an_event_that_starts_in_years_ends_the_replay_too() -> None:
    """The replay ends although an event that waits for a person starts only in years."""
    outcomes = played(past("A", "v0", not_before=NOW + 10 * 365 * 86_400), approve=None)
    assert (outcomes["A"].approved_at, outcomes["A"].reason) == (None, "Azure starts it too soon")


def test_a_vm_that_never_said_whether_it_prepares_counts_as_heard() -> None:
    """A VM that never said whether it prepares counts as heard in the replay."""
    assert played(past("A", "v1"), has_said=False)["A"].waited == 0


def test_an_event_that_lasts_too_long_lets_no_other_go_first() -> None:
    """While one event lasts, Azure starts the other one that waits for it."""
    outcomes = played(past("A", "v0", seconds=3000), past("B", "v1", at=10))
    assert outcomes["B"].approved_at is None
    assert "1 of db away" in outcomes["B"].reason


def test_events_of_other_vms_are_left_out() -> None:
    """Events of VMs that belong to no group are left out."""
    assert played(past("A", "other")) == {}
