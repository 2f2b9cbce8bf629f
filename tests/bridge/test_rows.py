"""The rows of the store: each proves that it is what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_helpers import draft, known_event, opened

from bridge.rows import proof
from bridge.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store that knows two events."""
    with opened(tmp_path) as made:
        made.commit([draft(1)], known=[known_event("A"), known_event("B", pending=False)])
        yield made


def change(store: Store, statement: str) -> None:
    """Change a row behind everybody's back."""
    with store.transaction() as connection:
        assert connection.execute(statement).rowcount == 1


def test_a_proof_is_of_the_values_in_their_order() -> None:
    """Other values, another order or another type make another proof."""
    proofs = {proof("a", 1), proof("a", 2), proof("b", 1), proof(1, "a"), proof("a", "1")}
    assert len(proofs) == 5


def test_a_proof_of_text_that_is_none() -> None:
    """What no encoding can hold has one, too."""
    assert proof("\udcff") != proof("\udcfe")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET value = replace(value, 'n\": 1', 'n\": 3') WHERE key = 'a'",
        "UPDATE events SET pending = 0 WHERE key = 'a'",
        "UPDATE events SET key = 'aa' WHERE key = 'a'",
    ],
)
def test_an_event_that_is_not_what_was_written(store: Store, damage: str) -> None:
    """A number that has become another is found, though it reads well."""
    change(store, damage)
    with pytest.raises(ValueError, match="is not what was written"):
        store.seen()


def test_events_come_back_as_they_were(store: Store) -> None:
    """The proof is not in the way."""
    assert {key: each.pending for key, each in store.seen().known.items()} == {
        "a": True,
        "b": False,
    }


def test_a_store_whose_numbers_have_changed_is_put_aside(tmp_path: Path) -> None:
    """A sequence that a flipped bit has moved on would hide records, or give numbers twice."""
    with opened(tmp_path) as store:
        stream = store.stream
        store.commit([draft(1)])
        change(store, "UPDATE meta SET value = '9' WHERE key = 'sequence'")
    with opened(tmp_path) as store:
        assert (store.stream != stream, store.head) == (True, 1)  # the record itself is sound
