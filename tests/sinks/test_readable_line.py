"""A record as one line for people."""

from dataclasses import replace
from datetime import timedelta

import pytest

from sinks.readable_line import readable_line
from sinks.shared.text import escaped
from sinks.testing import (
    BRIDGE_TYPES,
    SAMPLE_TIME,
    sample_bridge_record,
    sample_heartbeat,
    sample_record,
    sample_records,
)
from wire.record import APPROVAL, EVENT_ENDED, EVENT_STARTED, Record

HOSTILE = "a\x1b[2Jb\x9b31mc\x7fd\re\nf\u202eg\u2028h\tz"


def test_a_scheduled_event_in_one_line() -> None:
    """The line has time, transition, type, status, VM, countdown, impact and description."""
    assert readable_line(sample_record(), now=SAMPLE_TIME) == (
        "12:00:01Z scheduled  Freeze Scheduled  this VM  not before 12:15:00Z (in 15m 00s)"
        "  pause of 5 s  Host maintenance \u2013 pause of a few seconds."
    )


def test_a_measured_pause_is_shown() -> None:
    """The line of a started event has the pause that this VM measured."""
    line = readable_line(sample_record(3, record_type=EVENT_STARTED), now=SAMPLE_TIME, width=60)
    assert line == (
        "12:00:03Z started    Freeze Started  this VM  pause of 5 s  measured: paused 4.8 s"
    )


def test_an_event_that_ended_for_this_vm_only() -> None:
    """The line says that the event ended for this VM only."""
    record = sample_record(record_type=EVENT_ENDED)
    observation = {**record.data["observation"], "goesOnWithoutThisVm": True}
    elsewhere = replace(record, data={**record.data, "observation": observation})
    assert "goes on without this VM" in readable_line(elsewhere, now=SAMPLE_TIME)


def test_a_heartbeat_is_short() -> None:
    """The line of a heartbeat says only that the bridge is alive."""
    assert readable_line(sample_heartbeat(), now=SAMPLE_TIME) == (
        "12:00:01Z bridge heartbeat  alive, 0 pending, last poll 2026-03-01T12:00:00.000Z"
    )


def approval(**said: object) -> Record:
    """Return a receipt with these members of its data changed."""
    fields = {
        "jti": "5e9a0b52-6a3c-4f0e-9d0a-1f2f60f3a1aa",
        "evt": "E-1",
        "state": "confirmed",
        "reason": None,
        "actor": "anna@example.com",
        "issuer": "https://control.example",
        "resources": ["db-0", "db-1"],
    }
    sample = sample_record()
    return replace(sample, type=APPROVAL, data={"vm": sample.data["vm"], **fields, **said})


def test_a_receipt_in_one_line() -> None:
    """The line of a receipt has state, event, actor and VMs; a long list becomes a number, and the
    approver's reason comes last, escaped.
    """
    assert readable_line(approval(), now=SAMPLE_TIME) == (
        "12:00:01Z approval   confirmed  event E-1  by anna@example.com (https://control.example)"
        "  releases db-0, db-1"
    )
    refused = approval(state="rejected", reason="event_changed", issuer=None, actor="rule:mine")
    assert readable_line(refused, now=SAMPLE_TIME) == (
        "12:00:01Z approval   rejected: event_changed  event E-1  by rule:mine  releases db-0, db-1"
    )
    ping = approval(evt=None, state="accepted", resources=[])
    assert "  accepted  ping  by anna@example.com (" in readable_line(ping, now=SAMPLE_TIME)
    many = approval(resources=[f"db-{n}" for n in range(12)], rsn="CHG0012345 \x1b[2J\u202e")
    assert readable_line(many, now=SAMPLE_TIME).endswith(
        "  releases db-0, db-1, db-2 and 9 more  because: CHG0012345 \\u001b[2J\\u202e"
    )


@pytest.mark.parametrize(
    ("state", "tint"), [("confirmed", "\x1b[32m"), ("failed", "\x1b[31m"), ("posted", "\x1b[33m")]
)
def test_the_colour_of_a_receipt_is_its_states(state: str, tint: str) -> None:
    """A receipt is green once done, red if it failed, and yellow in between."""
    line = readable_line(approval(state=state), now=SAMPLE_TIME, colour=True)
    assert line.startswith(f"12:00:01Z {tint}approval \x1b[0m  {state}")


def test_an_event_that_is_over_has_no_countdown() -> None:
    """The line of an event that was cancelled before its time has its notBefore and no
    countdown.
    """
    ended = sample_record(4, record_type=EVENT_ENDED)
    event = {**ended.data["event"], "eventStatus": "Canceled", "notBefore": "2026-03-01T12:15:00Z"}
    line = readable_line(replace(ended, data={**ended.data, "event": event}), now=SAMPLE_TIME)
    assert "Freeze Canceled  this VM  not before 12:15:00Z  pause" in line


@pytest.mark.parametrize("record_type", BRIDGE_TYPES)
def test_a_record_about_the_bridge_in_one_line(record_type: str) -> None:
    """The line of a bridge's start cannot be taken for that of an event's start."""
    line = readable_line(sample_bridge_record(record_type=record_type), now=SAMPLE_TIME)
    assert line.startswith(f"12:00:01Z bridge {record_type.split('.')[2]}  ")


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (("db-0", "db-1", "db-2"), "this VM and 2 more"),
        (("db-1",), "  db-1  "),
        (("db-1", "db-2"), "2 other VMs"),
        ((), "no VM named"),
    ],
)
def test_the_named_vms(resources: tuple[str, ...], expected: str) -> None:
    """This VM comes first among the named VMs, and a long list becomes a number."""
    assert expected in readable_line(sample_record(resources=resources), now=SAMPLE_TIME)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (timedelta(seconds=9), "12:15:00Z (in 9s)"),
        (timedelta(minutes=2, seconds=5), "12:15:00Z (in 2m 05s)"),
        (timedelta(hours=3, minutes=4), "12:15:00Z (in 3h 04m)"),
        (timedelta(days=6, hours=2), "2026-03-01T12:15:00Z (in 6d 2h)"),
        (timedelta(seconds=-1), "12:15:00Z (now due)"),
    ],
)
def test_the_countdown(before: timedelta, expected: str) -> None:
    """The countdown has the two largest units, and the start has a date only if it is needed."""
    now = SAMPLE_TIME + timedelta(minutes=15) - before
    assert f"not before {expected}" in readable_line(sample_record(), now=now)


def test_only_the_description_is_shortened() -> None:
    """On a narrow terminal only the description is cut."""
    full = readable_line(sample_record(description="x" * 500), now=SAMPLE_TIME)
    facts = full.rstrip("x")
    cut = readable_line(sample_record(description="x" * 500), now=SAMPLE_TIME, width=120)
    assert cut == facts + "x" * (119 - len(facts)) + "\u2026"
    assert (
        readable_line(sample_record(description="x" * 500), now=SAMPLE_TIME, width=20) == facts[:-2]
    )


def test_no_control_character_comes_through() -> None:
    """Control characters in texts of IMDS are escaped, in any script."""
    assert escaped("Wartung \u2013 \u7dad\u8b77") == "Wartung \u2013 \u7dad\u8b77"
    record = sample_record(description=HOSTILE, resources=[HOSTILE])
    line = readable_line(record, now=SAMPLE_TIME)
    assert line.isprintable()
    assert "a\\u001b[2Jb\\u009b31mc\\u007fd\\re\\nf\\u202eg\\u2028h\\tz" in line


def test_colour_marks_the_transition_only() -> None:
    """Only the transition has a colour, and the text without colour is the same."""
    plain = readable_line(sample_record(4, record_type=EVENT_ENDED), now=SAMPLE_TIME)
    tinted = readable_line(sample_record(4, record_type=EVENT_ENDED), now=SAMPLE_TIME, colour=True)
    assert tinted == plain.replace("ended    ", "\x1b[32mended    \x1b[0m")


@pytest.mark.parametrize("record", sample_records(), ids=lambda record: record.type)
def test_every_kind_of_record_is_one_line(record: Record) -> None:
    """No kind of record breaks the line or the program."""
    assert readable_line(record, now=SAMPLE_TIME, width=80).isprintable()
