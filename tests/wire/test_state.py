"""The retained state of a VM and the status of its bridge."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from sinks.samples import SAMPLE_VM, sample_event, sample_pending
from wire.state import (
    ShortVm,
    StateError,
    VmState,
    VmStatus,
    read_state,
    read_status,
    write_document,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STATE = VmState(
    vm=ShortVm.of(SAMPLE_VM),
    time=NOW,
    events=(sample_pending(sample_event("E-1", description=None)),),
)
STATUS = VmStatus(
    status="offline",
    reason="lost",
    time=None,
    version="1",
    session="run",
    sink="mqtt",
    commands=True,
    vm=ShortVm.of(SAMPLE_VM),
)


def changed(**change: Any) -> bytes:
    """A state whose event was changed after it was written."""
    document = json.loads(write_document(STATE))
    document["events"][0] |= change
    return json.dumps(document).encode()


def test_a_state_is_read_as_it_was_written() -> None:
    """A state that is read again has all values but the description, which only records have."""
    assert read_state(write_document(STATE)) == STATE
    assert "description" not in json.loads(write_document(STATE))["events"][0]


def test_a_status_is_read_as_it_was_written() -> None:
    """A status that is read again has all values; a last will has no time."""
    assert read_status(write_document(STATUS)) == STATUS
    assert json.loads(write_document(STATUS))["time"] is None


def test_an_event_under_the_fingerprint_of_another_is_refused() -> None:
    """A state is refused if an event has the fingerprint of another one: a person would approve
    what they have not seen.
    """
    with pytest.raises(StateError, match=r"events\.0\.fingerprint") as caught:
        read_state(changed(resources=["somebody-else"]))
    assert caught.value.reason == "wrong_type"


def test_the_state_of_version_0_1_0_proves_nothing() -> None:
    """A state of version 0.1.0 proves no fingerprint, because it lacks fields that the fingerprint
    covers.
    """
    document = json.loads(write_document(STATE))
    for name in ("resourceType", "eventSource", "durationInSeconds"):
        del document["events"][0][name]
    (event,) = read_state(json.dumps(document).encode()).events
    assert not event.is_what_it_shows
    assert event.event.event_id == "E-1"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not_json"),
        (b"[]", "wrong_type"),
        (b"{}", "missing_field"),
        (changed(revision=0), "wrong_type"),
        (changed(revision=None), "wrong_type"),
    ],
)
def test_an_invalid_state_is_refused_with_one_word(body: bytes, reason: str) -> None:
    """An invalid state is refused with a word for a metric and a message for a person."""
    with pytest.raises(StateError) as caught:
        read_state(body)
    assert caught.value.reason == reason
