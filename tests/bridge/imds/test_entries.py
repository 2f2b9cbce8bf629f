"""The entries of a document as text: reading a document after another is reading it alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.documents.documents import entry

from bridge.imds.document import Document, DocumentError, parse_document

ENTRIES = [entry(f"E-{number}", resources=[f"vm{number}"]) for number in range(5)]

WORDS = st.sampled_from(["EventId", "Events", "x", "A-1", "a-1", '"Events":[', "}", "]", "\\", "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
LISTS = st.lists(
    st.sampled_from(ENTRIES)
    | st.fixed_dictionaries({"EventId": WORDS}, optional={"Resources": VALUES, "x": VALUES})
    | VALUES,
    max_size=6,
)


def written(events: Any, **more: Any) -> bytes:
    """A document as compact as IMDS writes it."""
    return json.dumps({**more, "Events": events}, separators=(",", ":")).encode()


def read(body: bytes, before: Document | None = None) -> Document | str:
    """What a body says, or what is wrong with it."""
    try:
        return parse_document(body, before)
    except DocumentError as error:
        return str(error)


def before_of(body: bytes) -> Document | None:
    """The document before, if it could be read."""
    document = read(body)
    return document if isinstance(document, Document) else None


@given(LISTS, LISTS, st.sampled_from([None, 0, 2]), st.dictionaries(WORDS, VALUES, max_size=2))
def test_a_document_after_another_is_what_it_is_alone(
    old: list[Any], new: list[Any], indent: int | None, more: dict[str, Any]
) -> None:
    """Whatever was read before, and however it is spaced; an escaped name is read as a whole."""
    before = before_of(written(old))
    body = json.dumps({**more, "Events": new, "DocumentIncarnation": 7}, indent=indent).encode()
    assert read(body, before) == read(body) == read(body.replace(b'"Events"', b'"\\u0045vents"'))


@given(st.binary(max_size=6), st.integers(0, 400), st.integers(0, 3))
def test_a_damaged_document_is_refused_for_the_same_reason(
    inserted: bytes, place: int, cut: int
) -> None:
    """Bytes put in or taken out anywhere: the same events, or the same error, as read alone."""
    sound = written(ENTRIES[:2], DocumentIncarnation=1)
    body = sound[:place] + inserted + sound[place + cut :]
    assert read(body, before_of(sound)) == read(body)


@pytest.mark.parametrize(
    "now",
    [
        ENTRIES,
        ENTRIES[1:],
        ENTRIES[:-1],
        [*ENTRIES[:2], entry("E-9"), *ENTRIES[2:]],
        [*ENTRIES[:2], entry("E-2", resources=["other"]), *ENTRIES[3:]],
        [entry("E-9"), *ENTRIES],
        [*ENTRIES, entry("E-9")],
    ],
    ids=["same", "first gone", "last gone", "one more", "one changed", "new first", "new last"],
)
def test_what_is_the_same_text_is_not_read_again(now: list[dict[str, Any]]) -> None:
    """The events that did not change are the very objects of before."""
    before = parse_document(written(ENTRIES, DocumentIncarnation=1))
    after = parse_document(written(now, DocumentIncarnation=23), before)
    assert after.incarnation == 23
    assert [each.event_id for each in after.events.values()] == [each["EventId"] for each in now]
    kept = {key for key, event in after.events.items() if event is before.events.get(key)}
    assert kept == {each["EventId"].casefold() for each in now if each in ENTRIES}


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":{"Events":[{"EventId":"inner"}]},"Events":[]}',
        b'{"x":[{"Events":[{"EventId":"inner"}]}],"Events":[]}',
        b'{"x":"\\"Events\\":[","Events":[{"EventId":"outer"}]}',
        b'{"Events":[{"EventId":"outer"}],"x":{"Events":[{"EventId":"inner"}]}}',
    ],
)
def test_only_the_outermost_list_counts(body: bytes) -> None:
    """A list called Events within something else is not the document's."""
    found = parse_document(body).events
    assert list(found) == ([] if body.endswith(b"[]}") else ["outer"])
