"""The oracle itself: it lets pass what is right, and names each thing that can be wrong."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from support.faults.oracle import Evidence, judge
from support.imds.restless_imds import fingerprint

from bridge.simulator.approvals import Post

EVENT = "E-1"
NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def entry(status: str = "Scheduled") -> dict[str, Any]:
    """An event as IMDS writes it."""
    return {
        "EventId": EVENT,
        "EventType": "Freeze",
        "ResourceType": "VirtualMachine",
        "Resources": ["web_3"],
        "EventStatus": status,
        "NotBefore": "Mon, 04 May 2026 04:00:00 GMT" if status == "Scheduled" else "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


def record(sequence: int, kind: str, stream: str = "s-1", **data: Any) -> bytes:
    """A record with as much of it as the oracle reads."""
    made: dict[str, Any] = {
        "id": f"id-{stream}-{sequence}",
        "type": f"seb.{kind}.v1",
        "stream": stream,
    }
    return json.dumps({**made, "sequence": f"{sequence:020d}", "data": data}).encode()


def event_record(
    sequence: int, kind: str, status: str, *, revision: int, seen: str, **more: Any
) -> bytes:
    """A record of the event, whose id is that of its fact."""
    event = {"eventId": EVENT, "eventStatus": status}
    data: dict[str, Any] = {
        "transition": kind,
        "revision": revision,
        "fingerprint": seen,
        "event": event,
    }
    made = json.loads(record(sequence, f"event.{kind}", **data))
    return json.dumps({**made, "id": f"id-{revision}-{seen}", **more}).encode()


def receipt(sequence: int, state: str, **more: Any) -> bytes:
    """A receipt of the rule `mine`."""
    data: dict[str, Any] = {"jti": "j-1", "evt": EVENT, "state": state, "actor": "rule:mine"}
    return record(sequence, "approval", **{**data, **more})


SCHEDULED, STARTED = fingerprint(entry()), fingerprint(entry("Started"))
STORY = [
    record(1, "bridge.started"),
    event_record(2, "scheduled", "Scheduled", revision=1, seen=SCHEDULED),
    receipt(3, "accepted"),
    receipt(4, "posted"),
    event_record(5, "started", "Started", revision=2, seen=STARTED),
    receipt(6, "confirmed"),
]
POST = Post(
    time=1.0,
    wall=NOW,
    body=json.dumps({"StartRequests": [{"EventId": EVENT}]}).encode(),
    status=200,
    started=(EVENT,),
)
GOOD = Evidence(
    case="right",
    received={"file": STORY, "mqtt": [STORY[0], *STORY[:3], STORY[1], *STORY[2:]]},
    documents=[{"Events": [entry()]}, {"Events": [entry("Started")]}],
    standing={"Events": [entry("Started")]},
    outbox={"sinks": [{"sink": "file", "backlog": 0}], "dead": []},
    posts=[POST],
    rules=["mine"],
)


def dead(sequence: int, reason: str = "refused") -> dict[str, Any]:
    """A dead record in the outbox."""
    kind = "seb.event.scheduled.v1"
    return {"sink": "file", "sequence": sequence, "record_type": kind, "reason": reason}


def letter(sequence: int, about: int) -> bytes:
    """The dead-letter record that tells it."""
    detail = {"sink": "file", "recordSequence": f"{about:020d}"}
    return record(sequence, "bridge.dead-letter", deadLetter=detail)


def having(*file: bytes, **changes: Any) -> Evidence:
    """The same with another story at the file, and nothing at any other sink."""
    return replace(GOOD, received={"file": list(file)}, **changes)


def swapped(place: int, other: bytes) -> Evidence:
    """The same with another record in a place."""
    return having(*STORY[:place], other, *STORY[place + 1 :])


def without(place: int) -> Evidence:
    """The same where a record is missing at the file alone."""
    return replace(
        GOOD, received={"file": [*STORY[:place], *STORY[place + 1 :]], "mqtt": list(STORY)}
    )


def test_what_is_right_passes_with_its_figures() -> None:
    """Repetitions are no fault, and are counted."""
    figures = judge(GOOD, more="and so on")
    assert (
        figures.rounds,
        figures.documents,
        figures.records,
        figures.repeated,
        figures.dead,
        figures.posts,
    ) == (1, 2, 6, 3, 0, 1)
    assert figures.line.startswith("faults: right ")
    assert figures.line.endswith("records 6  repeated 3  dead 0  lost 0  POSTs 1  and so on")


RIGHT: Mapping[str, Evidence] = {
    "a dead record, told": replace(
        without(1),
        received={"file": [STORY[0], *STORY[2:], letter(7, 2)], "mqtt": [*STORY, letter(7, 2)]},
        outbox={"sinks": [], "dead": [dead(2)]},
    ),
    "a dead record, tried again since": replace(
        without(1),
        received={
            "file": [STORY[0], *STORY[2:], letter(7, 2), STORY[1]],
            "mqtt": [*STORY, letter(7, 2)],
        },
    ),
    "a heartbeat that was replaced": having(
        *STORY[:5], record(7, "bridge.heartbeat"), receipt(8, "confirmed"), heartbeats=True
    ),
    "a filter": replace(
        without(0), wants={"file": lambda record: record["type"] != "seb.bridge.started.v1"}
    ),
    "a sink that came later": replace(without(0), begins={"file": 2}),
    "a lost store, told": having(
        *STORY, record(1, "bridge.store-reset", "s-2"), resets=1, standing=None
    ),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_may_be_is_let_pass(case: str) -> None:
    """Nothing of this is a fault."""
    assert RIGHT[case].case == judge(RIGHT[case]).case


WRONG: Mapping[str, tuple[Evidence, str]] = {
    "lost at a sink": (without(1), "record 2, seb.event.scheduled.v1, never came to file"),
    "lost everywhere": (having(*STORY[:3], *STORY[4:]), "record 4 of stream s-1 is nowhere"),
    "committed, never arrived": (
        replace(GOOD, committed=[record(7, "bridge.stopped")]),
        "record 7, seb.bridge.stopped.v1, never came to file",
    ),
    "never recorded": (
        having(STORY[0], standing=None, posts=[]),
        "lost: Scheduled of E-1, read in document 0",
    ),
    "out of order": (
        having(STORY[0], STORY[2], STORY[1], *STORY[3:]),
        "file: record 3 came before 2",
    ),
    "other bytes": (
        replace(GOOD, received={"file": STORY, "mqtt": [*STORY, STORY[0] + b" "]}),
        "mqtt: record 1 has other bytes than elsewhere",
    ),
    "not a record": (having(b"{", *STORY), "file: this is no record"),
    "a fact with two ids": (
        having(*STORY, event_record(7, "started", "Started", revision=2, seen=STARTED, id="new")),
        "a fact has two ids: id-2-",
    ),
    "an id for two facts": (
        swapped(
            5, event_record(6, "ended", "Completed", revision=3, seen="x", id=f"id-2-{STARTED}")
        ),
        "stands for two facts",
    ),
    "told twice": (
        having(*STORY, event_record(7, "started", "Started", revision=3, seen=STARTED)),
        "E-1 is told twice to be started",
    ),
    "a revision left out": (
        swapped(4, event_record(5, "started", "Started", revision=3, seen=STARTED)),
        "the revisions of E-1 are [1, 3]",
    ),
    "scheduled after started": (
        having(*STORY, event_record(7, "scheduled", "Scheduled", revision=3, seen="x")),
        "E-1 is scheduled after it was started",
    ),
    "a wrong ending": (
        having(*STORY, event_record(7, "ended", "Canceled", revision=3, seen="x")),
        "E-1 had started, and ended Canceled",
    ),
    "a wrong end": (
        replace(GOOD, standing={"Events": []}),
        "at the end E-1 is over; the records say pending",
    ),
    "undelivered": (
        replace(GOOD, outbox={"sinks": [{"sink": "file", "backlog": 3}], "dead": []}),
        "file: 3 records are still to be delivered",
    ),
    "dead, and not told": (
        replace(without(1), outbox={"sinks": [], "dead": [dead(2)]}),
        "dead record 2 was told by no dead-letter record",
    ),
    "dead without a reason": (
        replace(without(1), outbox={"sinks": [], "dead": [dead(2, "")]}),
        "dead record 2 has no reason",
    ),
    "a lost store, not told": (
        having(*STORY, record(1, "bridge.started", "s-2")),
        "0 stores were lost, 0 told, and there are 2",
    ),
    "an old stream goes on": (
        having(*STORY, record(1, "bridge.store-reset", "s-2"), STORY[5], resets=1),
        "file: an older stream goes on after a newer one",
    ),
    "a POST without a receipt": (
        swapped(2, record(3, "bridge.gap")),
        "a POST for E-1 without a cause",
    ),
    "a cause of nobody's": (replace(GOOD, rules=[]), "nobody's cause"),
    "two effects": (replace(GOOD, posts=[POST, POST]), "2 effective approvals of e-1"),
    "two ends": (
        having(*STORY, receipt(7, "failed")),
        "j-1 has more than one end",
    ),
    "posted before accepted": (swapped(2, receipt(3, "posted")), "the receipts of j-1 are"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case: str) -> None:
    """Each fault fails the case, with a sentence that says which it is."""
    evidence, sentence = WRONG[case]
    with pytest.raises(AssertionError) as raised:
        judge(evidence)
    assert sentence in str(raised.value)


def test_figures_are_shown_once(tell: Callable[[str], None]) -> None:
    """A case may also show a line of its own."""
    tell(f"faults: {'the oracle itself':<44}  {len(WRONG)} faults named")
