"""The keys by which a setting says which events it applies to: a rule of the bridge, and what a
group of the console approves without a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Protocol

from pydantic import AfterValidator, Field

from sinks.shared.json_values import JsonList
from sinks.shared.section import Section


def _some(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not all(word.strip() for word in words):
        # The owner would mean 'none', and every event would match.
        raise ValueError(
            "an empty list or word would match nothing; leave the key out to match any"
        )
    return tuple(word.strip() for word in words)


_Words = Annotated[JsonList, AfterValidator(_some)]


WORD_KEYS: Final = ("event_type", "event_source")
"""The keys that list words; each has the name of the event's field that they are compared with."""


class MatchableEvent(Protocol):
    """What an event must have to be compared with the keys, such as `wire.event.Event`."""

    @property
    def event_type(self) -> str | None:
        """Azure's type, such as Freeze."""

    @property
    def event_source(self) -> str | None:
        """Platform or User."""

    @property
    def duration_in_seconds(self) -> int | None:
        """The announced interruption; None if it is not known."""


class EventMatch(Section):
    """Selects events by what Azure says of them. A key that is None or empty matches any event."""

    event_type: _Words = Field((), description="Types to match, such as Freeze; any unless given")
    event_source: _Words = Field(
        (), description="Sources to match, Platform or User; any unless given"
    )
    max_duration: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Match only if the duration is known and at most so many seconds",
    )

    def matches(self, event: MatchableEvent) -> bool:
        """Check whether the event is selected."""
        longest = self.max_duration
        duration = event.duration_in_seconds
        return all(_listed(getattr(event, key), getattr(self, key)) for key in WORD_KEYS) and (
            longest is None or (duration is not None and 0 <= duration <= longest)
        )

    def unknown(self, event: MatchableEvent) -> list[str]:
        """Return the keys whose word the event lacks, or has blank, if the event matches otherwise;
        empty if it does not.
        """
        missing = [
            key for key in WORD_KEYS if getattr(self, key) and not _plain(getattr(event, key))
        ]
        without = self.model_copy(update=dict.fromkeys(missing, ()))
        return missing if without.matches(event) else []

    def includes(self, other: EventMatch) -> bool:
        """Check whether every event that the other one selects is selected here too."""
        longest = self.max_duration
        return all(_is_subset(getattr(other, key), getattr(self, key)) for key in WORD_KEYS) and (
            longest is None or (other.max_duration is not None and other.max_duration <= longest)
        )

    @property
    def subject(self) -> str:
        """Return the events that are selected, as the subject of a sentence."""
        text = f"every {' or '.join(self.event_type)} event" if self.event_type else "every event"
        if self.event_source:
            text += f" of source {' or '.join(self.event_source)}"
        return text

    @property
    def clauses(self) -> list[str]:
        """Return what else is true of these events, each in words that can follow "that"."""
        if self.max_duration is None:
            return []
        return [f"is to last at most {self.max_duration:g} s"]

    @property
    def words(self) -> str:
        """Return a phrase that says which events are selected."""
        return f"{self.subject} that {' and '.join(self.clauses)}" if self.clauses else self.subject


def _listed(word: str | None, words: Sequence[str]) -> bool:
    """Check whether one of Azure's values is among these words, without regard to case."""
    return not words or _plain(word) in map(_plain, words)


def _plain(word: str | None) -> str:
    """Return a word as it is compared; empty if there is none."""
    return (word or "").strip().casefold()


def _is_subset(words: Sequence[str], others: Sequence[str]) -> bool:
    """Check whether all of the words are among the others. An empty list stands for every word."""
    return not others or (bool(words) and all(_listed(word, others) for word in words))
