"""Each state of the page at a clock that stands still; screenshots go to test-artifacts/page."""

from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Page
from support.page.browser import check_views
from support.page.status_fixture import StatusServer
from support.page.status_samples import (
    STARTED,
    VM,
    blind,
    ended,
    event,
    imds,
    measured,
    moment,
    numbered,
    receipt,
    record,
    sink,
    status,
)
from support.page.still_page import opened

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\u0007" + "W" * 700 + " שלום עולם " * 40
BEGAN = record("bridge.started", 1, ago=93_784, started={"restarted": True, "gapSeconds": 95.2})


STORY = [
    BEGAN,
    record("bridge.gap", 2, ago=4_000, gap={"seconds": 42, "reason": "imds"}),
    record("event.scheduled", 3, ago=1_100),
    record("event.updated", 4, ago=1_000, changed=["notBefore"]),
    receipt(5, 900, "confirmed"),
    record("event.started", 6, ago=890, event=event(**STARTED)),
    ended(7, 520, "Completed", measured(pause=5.2)),
    ended(
        *(8, 480, "Completed", measured(restarted=True, down=48.2)),
        eventType="Reboot",
        durationInSeconds=30,
    ),
    ended(9, 400, "Unknown", measured(), eventType="Redeploy", durationInSeconds=None),
    record("bridge.dead-letter", 10, ago=300, deadLetter={"sink": "ops", "reason": "HTTP 400"}),
    ended(11, 180, "Canceled", measured()),
    ended(12, 90, "Completed", measured(pause=12.4)),
]
TROUBLED = [
    sink(
        state="failing",
        reason="127.0.0.1:1883: connection refused; check HOST and PORT",
        backlog=1_212,
        oldestPendingAt=moment(-754),
        nextTrySeconds=12.0,
    ),
    sink(
        name="ops",
        kind="webhook",
        state="paused",
        reason="the destination answered 410 Gone; see to it, then: seb outbox retry ops",
        backlog=3,
        oldestPendingAt=moment(-3_000),
        dead=2,
    ),
    sink(name="stdout", kind="stdout"),
    sink(name="hub", kind="eventhub", state="starting", delivered=0, lagSeconds=None),
    sink(name="drain", kind="program", state="idle", delivered=0, lagSeconds=None),
]
NO_STORE = {
    "writable": False,
    "trouble": None,
    "stream": None,
    "lastSequence": 0,
    "sizeBytes": 0,
}
MANY = [
    numbered(
        number,
        eventType=("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "Warp")[number % 6],
        affectsThisVm=number % 2 == 0,
        resources=[*(["WEB_3"] * (number % 2 == 0)), *(f"web_{n}" for n in range(10, 1_010))],
        notBefore=moment(61 + number * 9_000),
    )
    for number in range(50)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """What the bridge says, and what the page makes of it."""

    said: dict[str, Any]
    records: tuple[dict[str, Any], ...] = (BEGAN,)
    name: str
    """The big state."""
    says: tuple[str, ...]
    """What a person must be able to read."""


STATES = {
    "all-clear": PageState(
        said=status(),
        records=tuple(STORY),
        name="All clear",
        says=("No event is announced", "Last: Freeze ended 1 min 30 s ago"),
    ),
    "not-looking": PageState(
        said=blind(events=[event()]),
        name="Not looking",
        says=("last answered 42 s ago", "did not answer within 5 s", "Last known: Freeze", "14:32"),
    ),
    "not-looking-yet": PageState(
        said=status(
            looking=False,
            ready=False,
            vm=None,
            sinks=[],
            store=NO_STORE,
            imds=imds(lastAttemptAt=None, lastSuccessAt=None, incarnation=None),
        ),
        records=(),
        name="Not looking yet",
        says=("has not answered yet", "may take two minutes"),
    ),
    "hung": PageState(
        said=status(healthy=False, looking=False, imds=imds(lastSuccessAt=moment(-70))),
        name="Not looking",
        says=("last answered 1 min 10 s ago", "the bridge's poll loop hangs"),
    ),
    "coming": PageState(
        said=status(events=[event(resources=["web_4", "WEB_3"])]),
        records=(BEGAN, record("event.scheduled", 2), receipt(3, 5, "posted")),
        name="Event coming",
        says=(
            "14:32",
            "until it may start, 03:29:00 (02:29:00 UTC)",
            "Freeze: short pause",
            "This VM and 1 other",
            "One approval releases all 2 VMs.",
            "Approval posted (by rule:drained)",
            "9 s of interruption",
        ),
    ),
    "evicted": PageState(
        said=status(
            events=[
                event(
                    eventType="Preempt",
                    notBefore=moment(29),
                    noticeSeconds=30.0,
                    firstSeenAt=moment(-1),
                    description="",
                    durationInSeconds=None,
                )
            ]
        ),
        name="Event coming",
        says=("00:29", "Preempt: eviction", "duration not given", "This VM only"),
    ),
    "under-way": PageState(
        said=status(
            events=[
                event(
                    **STARTED,
                    eventType="Reboot",
                    durationInSeconds=20,
                    measured=measured(restarted=True, down=31.5),
                ),
                numbered(2, affectsThisVm=False, resources=["web_4"]),
            ],
        ),
        records=(BEGAN, record("event.started", 2, ago=75, event=event(eventType="Reboot"))),
        name="Event under way",
        says=("1 min 15 s", "Reboot: restart", "announced", "was down", "and 1 more event"),
    ),
    "others": PageState(
        said=status(
            events=[
                numbered(1, affectsThisVm=False, resources=["web_4", "web_5"]),
                numbered(2, affectsThisVm=False, eventType="Terminate", notBefore=moment(90_000)),
            ]
        ),
        name="Events for others",
        says=("Nothing is announced for this VM.", "2 other VMs", "1 d 01:00:00"),
    ),
    "sinks-down": PageState(
        said=status(
            sinks=TROUBLED,
            store=status()["store"] | {"writable": False, "trouble": "the disk is full"},
        ),
        name="All clear",
        says=(
            "2 of 5 sinks do not take records: mqtt, ops",
            "2 records were refused for good.",
            "The store cannot be written, so news is not kept: the disk is full",
            "Tried again in 12 s.",
            "1,212",
            "12 min",
        ),
    ),
    "many": PageState(
        said=status(events=MANY),
        records=tuple(STORY),
        name="Event coming",
        says=("01:01", "25 of 50 for this VM", "and 49 more events", "This VM and 1,000 others"),
    ),
    "hostile": PageState(
        said=status(
            vm=VM | {"name": HOSTILE, "vmSize": HOSTILE, "tags": {HOSTILE: HOSTILE}},
            site=HOSTILE,
            events=[
                event(description=HOSTILE, resources=[HOSTILE, "x"]),
                numbered(
                    2,
                    affectsThisVm=False,
                    eventType=HOSTILE,
                    eventSource=HOSTILE,
                    resources=[],
                ),
            ],
            sinks=[sink(name=HOSTILE, kind=HOSTILE, state="failing", reason=HOSTILE)],
        ),
        records=(
            BEGAN,
            record("event.scheduled", 2, event=event(eventType=HOSTILE)),
            record(HOSTILE, 3),
        ),
        name="Event coming",
        says=("<img src=x onerror=alert(1)>", "This VM and 1 other", "No VM is named"),
    ),
}


@pytest.mark.parametrize("which", STATES)
def test_each_state_is_named_and_readable(page: Page, server: StatusServer, which: str) -> None:
    """Each state has its name and its words, nothing is cut off, and axe-core finds no serious
    fault.
    """
    state = STATES[which]
    server.status, server.records = state.said, list(state.records)
    opened(page, server)
    assert page.locator("#state h2").inner_text() == state.name
    text = " ".join(page.locator("body").inner_text().split())
    assert [each for each in state.says if each not in text] == []
    check_views(page, which)
