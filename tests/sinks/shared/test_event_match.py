"""Keys that select events: one that lists words never selects an event that lacks its word."""

from dataclasses import replace

import pytest
from support.console.reported_event import reported
from support.rules import EVENT_MATCH

from sinks.shared.event_match import WORD_KEYS, EventMatch, MatchableEvent
from wire.event import AZURE_WORDS


@pytest.mark.parametrize("key", [key for key, value in EVENT_MATCH.items() if type(value) is list])
def test_a_word_that_the_event_lacks_is_named(key: str) -> None:
    """An event without the word is not selected, and the key is named: a rule must wait then."""
    lacking = replace(reported("E-1"), **{key: None})
    match = EventMatch.model_validate({key: EVENT_MATCH[key]})
    assert not match.matches(lacking)
    assert match.unknown(lacking) == [key]


def test_each_key_that_lists_words_is_known() -> None:
    """The keys with lists in the examples are those that the class compares as words; Azure's words
    are known for each, and each is a field of whatever is compared.
    """
    assert [key for key, value in EVENT_MATCH.items() if type(value) is list] == list(WORD_KEYS)
    assert set(AZURE_WORDS) == set(WORD_KEYS)
    assert [key for key in WORD_KEYS if not hasattr(MatchableEvent, key)] == []
