"""What a filter of the history offers."""

from __future__ import annotations

from support.console.intake import NOW, Intake
from support.console.records import FakeVm


def test_a_filter_offers_the_words_that_most_events_have(intake: Intake) -> None:
    """A filter offers the most frequent types; a VM that reports another type with each event
    neither fills it nor displaces others.
    """
    vm, liar = FakeVm(name="a"), FakeVm(name="liar")
    intake.take(*(vm.event(f"E{number}", now=NOW) for number in range(2)))
    intake.take(
        *(liar.event(f"X{number}", event_type=f"A{number}", now=NOW) for number in range(400))
    )
    with intake.snapshots.open() as snapshot:
        types = snapshot.event_history.frequent_values("event_type")
    assert "Reboot" in types
    assert len(types) < 100
    assert types == sorted(types)
