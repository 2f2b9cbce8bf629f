"""Records are read by another parser than Python's own: it must see the same in them."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.samples import SAMPLE_TIME, sample_records
from wire.record import RecordDraft, read_record, seal

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


def made(data: Any) -> bytes:
    """Return the bytes of a record with this data."""
    draft = RecordDraft(
        type="seb.bridge.heartbeat.v1",
        source="urn:test",
        subject="bridge/test",
        time=SAMPLE_TIME,
        partition_key="vm",
        data=data,
    )
    return seal(draft, sequence=1, stream="stream").body


@settings(deadline=None)
@given(data=st.dictionaries(TEXT, VALUES, max_size=4))
def test_any_data_is_read_as_python_reads_it(data: dict[str, Any]) -> None:
    """Numbers, texts and nesting come back as `json` gives them, and of the same types."""
    body = made(data)
    expected = json.loads(body)["data"]
    assert repr(read_record(body).data) == repr(expected)


def test_every_sample_is_read_as_it_was_sealed() -> None:
    """A record that is read back equals the one that was committed."""
    for record in sample_records():
        assert read_record(record.body) == replace(record)


def test_deeply_nested_data_is_read() -> None:
    """A record is read whose unknown field is nested deeply, because IMDS may nest it."""
    data: Any = {}
    for _ in range(400):
        data = {"inner": data}
    assert read_record(made(data)).data == data
