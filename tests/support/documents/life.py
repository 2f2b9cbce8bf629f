"""The life of a document: what may change from look to look, and what else may happen."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from hypothesis import strategies as st
from support.documents.shapes import Entry, Spelling
from support.documents.strategies import BAD_BODIES, ENTRIES, ERRORS, EVENT_IDS

YEARS: Final = 30 * 365 * 86400.0
Edit = tuple[str, Any]
"""An event, and its new entry, or the name of what happens to it, or one field of another entry."""
EDITS: Final = st.lists(
    st.tuples(
        st.sampled_from(EVENT_IDS),
        ENTRIES
        | st.sampled_from(["start", "withdraw", "withdraw", "back", "back"])
        | st.tuples(st.sampled_from(["NotBefore", "DurationInSeconds", "Description"]), ENTRIES),
    ),
    max_size=3,
)
DISTURBANCES: Final = st.lists(
    st.tuples(st.just("wait"), st.sampled_from([0.5, 4.5, 7.0, 900.0]))
    | st.tuples(st.just("jump"), st.sampled_from([-3600.0, 3600.0, 0.5, -YEARS, YEARS]))
    | st.tuples(st.just("stand_still"), st.sampled_from([1.5, 20.0]))
    | st.tuples(st.just("bad_day"), ERRORS | BAD_BODIES)
    | st.tuples(st.just("restart"), st.sampled_from([0, 0, 1]))
    | st.tuples(st.just("lose_the_store"), st.just(0)),
    max_size=2,
)


@dataclass(frozen=True)
class LastSeenEvent:
    """A pending event as the last good document had it."""

    entry: Entry
    due: datetime | None
    """The last NotBefore that could be read."""
    first: datetime
    paused: float = 0.0
    """Seconds that this VM was measured to stand still since the event was first seen."""
    rebooted: bool = False


def edited(entry: Entry | None, change: Any, former: list[Entry]) -> Entry | None:
    """The entry after a change; None where it is gone. `former` are the entries before it."""
    match change:
        case Entry():
            return change
        case "back" if former:
            return former.pop()
        case "start" if entry is not None:
            begun = {"EventStatus": Spelling("Started", "Started"), "NotBefore": Spelling("", None)}
            return replace(entry, fields={**entry.fields, **begun})
        case (str() as name, Entry() as other) if entry is not None:
            return replace(entry, fields={**entry.fields, name: other.fields[name]})
        case _:
            return None


def change(before: Entry | None, after: Entry) -> str | None:
    """What happened to an event; another spelling of the same is nothing."""
    if after.status == "Started" and (before is None or before.status != "Started"):
        return "started"
    if before is None:
        return "scheduled"
    return "updated" if before.facts() != after.facts() else None
