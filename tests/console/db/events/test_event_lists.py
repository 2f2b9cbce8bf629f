"""Lists of events, a page at a time."""

from __future__ import annotations

from datetime import timedelta

from support.console.intake import Intake
from support.console.records import FakeVm

from console.db.events.event_filters import WantedEvents
from console.web.api.cursors import position_in
from console.web.api.events import events_page


def test_past_events_that_name_thousands_are_listed_some_at_a_time(intake: Intake) -> None:
    """Past events that name thousands of VMs are listed a few at a time, because all at once would
    be hundreds of megabytes; paging finds every one.
    """
    vm = FakeVm(name="web-1")
    names = [f"{number:0300}" for number in range(400)]
    for number in range(10):
        now = intake.now + timedelta(seconds=number)
        intake.take(vm.event(f"E-{number}", transition="ended", resources=names, now=now))
    found: list[str] = []
    after = None
    for _ in range(3):
        with intake.snapshots.open() as snapshot:
            page = {"state": "over", "limit": 1000, "after": after}
            items, following = events_page(snapshot, WantedEvents(), **page)  # type: ignore[arg-type]
        assert 0 < len(items) < 9
        found += [item.event_id for item in items]
        if following is None:
            break
        after = position_in(following, str, (int, float), str, str)  # type: ignore[arg-type]
    assert sorted(found) == [f"E-{number}" for number in range(10)]
