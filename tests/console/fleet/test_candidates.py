"""Which VMs can be asked to approve an event, over which channel, and in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.console.decision_cases import AT, candidate
from support.console.reported_event import reported

from console.fleet.candidates import PULL, PULL_SECONDS, candidates, channel_of, next_candidate
from console.fleet.contact import Listening
from console.fleet.values.decision import UNDECIDED
from console.fleet.values.event import FleetEvent, KnownEvent, NamedVm
from console.fleet.values.report import LatestReport
from console.records.incoming import UNPROVEN, EventReport

LISTENING = Listening(connected={"broker": True, "spare": False})


def known(*vms: NamedVm, **changes: Any) -> KnownEvent:
    """Return an event that names these VMs; `changes` are of its report."""
    report = EventReport(
        event=reported(),
        transition="scheduled",
        affects_this_vm=True,
        impact="pause",
        revision=1,
        fingerprint="sha256:1",
    )
    shown = LatestReport(
        event_id="E",
        vm_id="vm-1",
        record_id="r",
        stream="s",
        sequence=1,
        time=AT,
        first_seen_at=AT,
        report=replace(report, **changes),
    )
    return KnownEvent(
        event=FleetEvent(
            event_id="E", state="scheduled", shown_by="vm-1", shown_at=AT, first_seen_at=AT
        ),
        shown=shown,
        seen_by=1,
        reports_differ=False,
        named={each.name_key: each for each in vms},
        receipts=(),
        decided=UNDECIDED,
    )


HASH = known().shown.content_hash


def named(vm_id: str, **changes: Any) -> NamedVm:
    """Return a VM that is heard, takes commands over the broker and reports the event as shown."""
    facts: dict[str, Any] = {
        "name_key": vm_id,
        "vm_id": vm_id,
        "contact": "heard",
        "heard_at": AT,
        "command_source": "broker",
        "pulled_at": None,
        "content_hash": HASH,
        "is_over": False,
        "name_since": AT,
        "site": "default",
    }
    return NamedVm(**(facts | changes))


def asked(event: KnownEvent) -> list[str]:
    """Return the VMs that can be asked about the event, the best first."""
    return [each.vm_id for each in candidates(event, AT, LISTENING)]


@pytest.mark.parametrize(
    ("source", "polled_before", "expected"),
    [
        ("broker", None, "broker"),
        ("broker", 1, "broker"),
        ("spare", 1, PULL),
        ("spare", None, "spare"),
        ("spare", PULL_SECONDS, "spare"),
        ("removed", None, None),
        ("removed", 1, PULL),
        (None, 1, PULL),
        (None, PULL_SECONDS, None),
        (None, None, None),
    ],
)
def test_a_command_takes_a_connected_source_before_https(
    source: str | None, polled_before: float | None, expected: str | None
) -> None:
    """A command goes over the VM's source if a console is connected to it, or else over HTTPS if
    the VM polled within a minute, or else waits for the source if that is still configured.
    """
    polled_at = None if polled_before is None else AT - polled_before
    assert channel_of(source, polled_at, AT, LISTENING) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"contact": "late"},
        {"contact": "silent"},
        {"command_source": None},
        {"content_hash": "another"},
        {"content_hash": None},
    ],
    ids=str,
)
def test_only_a_heard_vm_that_reports_the_event_as_shown_is_asked(changes: dict[str, Any]) -> None:
    """A VM that is not heard, takes no commands, or reports something else cannot be asked."""
    assert asked(known(named("vm-1", **changes), named("vm-2"))) == ["vm-2"]


def test_nobody_is_asked_about_news_or_an_unproven_report() -> None:
    """An event that is only information, or whose fingerprint does not fit its fields, is approved
    by no VM.
    """
    news = {"event": replace(reported(), event_status="Pondering")}
    unproven = {"fingerprint": f"{UNPROVEN}1"}
    for changes, expected in (({}, ["vm-1"]), (news, []), (unproven, [])):
        vm = named("vm-1", content_hash=known(**changes).shown.content_hash)
        assert asked(known(vm, **changes)) == expected


def test_the_best_vm_is_asked_first() -> None:
    """A VM that did not give up comes first, then one whose channel is connected, then the one that
    was heard last.
    """
    event = known(
        named("gave-up", gave_up_on="sha256:1", heard_at=AT + 9),
        named("unconnected", command_source="spare", heard_at=AT + 8),
        named("earlier", heard_at=AT + 1),
        named("later", heard_at=AT + 2, gave_up_on="sha256:another"),
    )
    assert asked(event) == ["later", "earlier", "unconnected", "gave-up"]
    (best, *_, worst) = candidates(event, AT, LISTENING)
    assert (best.gave_up, best.is_connected, worst.gave_up) == (False, True, True)


def test_a_vm_that_was_tried_is_not_asked_again() -> None:
    """The next VM is the best one that was not tried; when all were tried, there is none."""
    found = [candidate("vm-1"), candidate("vm-2")]
    assert next_candidate(found) == found[0]
    assert next_candidate(found, tried=["vm-1"]) == found[1]
    assert next_candidate(found, tried=["vm-1", "vm-2"]) is None
