"""Time per change, as the document, the store and the number of sinks grow.

Linear in what changed, flat in what did not.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import growth_document, growth_sinks, growth_store
from tests.benchmarks.figures import Figure, growth, ms, table

TITLE: Final = "Growth"
LINEAR: Final = 1.5
"""How much more a change may cost among many than among few."""
FLAT: Final = 1.5
"""How much more it may cost for what does not change."""
UNREAD: Final = 0.5
"""How much of the reading a document may cost that is the same as before."""


def measure(
    scratch: Path,
    *,
    events: Sequence[int] = growth_document.SIZES,
    records: Sequence[int] = growth_store.SIZES,
    sinks: Sequence[int] = growth_sinks.SIZES,
    changes: int = 40,
) -> Any:
    """Milliseconds, by what grows."""
    scratch = scratch / "growth"
    scratch.mkdir()
    return {
        "document": growth_document.measure(scratch, sizes=events, changes=changes),
        "store": growth_store.measure(scratch, sizes=records, changes=changes),
        "sinks": growth_sinks.measure(scratch, sizes=sinks, changes=changes),
    }


def figures(found: Any) -> list[Figure]:
    """Each figure, the largest size against a small one."""
    return [*_document(found["document"]), *_store(found["store"]), *_sinks(found["sinks"])]


def _document(found: Any) -> Iterator[Figure]:
    grid, among = found["per_change_ms"], found["one_among"]
    few, many = list(grid)[len(grid) // 2], list(grid)[-1]
    for names in (next(iter(grid)), many):
        whole = f"{int(many):,} records are one transaction, which is long with such records"
        yield growth(
            what=f"per change, {many} events of {names} resources come at once",
            ours=ms(grid[many][names]),
            peer=f"{ms(grid[few][names])} of {few} events",
            ratio=grid[many][names] / grid[few][names],
            at_most=LINEAR,
            why=whole,
        )
    first = next(iter(among))
    for size in list(among)[1:]:
        each = among[size]
        yield growth(
            what=f"one event changes, {int(size) - 1} others do not",
            ours=ms(each["moved_ms"]),
            peer=f"{ms(among[first]['moved_ms'])} alone",
            ratio=each["moved_ms"] / among[first]["moved_ms"],
            at_most=FLAT,
            why=f"IMDS sends the whole document whenever anything in it changes, here "
            f"{each['bytes']:,} bytes: it has to be read and compared, which takes "
            f"{ms((each['moved_ms'] - among[first]['moved_ms']) / (int(size) - 1))} per event that "
            "did not change. Nothing of those events is stored, sent or logged. Azure's documents "
            "hold a handful",
        )
    last = among[list(among)[-1]]
    yield growth(
        what=f"a poll that finds the same {last['bytes']:,} bytes again",
        ours=ms(last["same_ms"]),
        peer=f"{ms(last['json_ms'])}: only reading their JSON",
        ratio=last["same_ms"] / last["json_ms"],
        at_most=UNREAD,
        why="the bytes are compared with those of the poll before, and nothing else is done",
    )


def _store(found: Any) -> Iterator[Figure]:
    for state, words in _STATES.items():
        sizes = found[state]
        first, last = next(iter(sizes)), list(sizes)[-1]
        for step, told in _STEPS.items():
            small, large = sizes[first][step], sizes[last][step]
            yield growth(
                what=f"{told}, {int(last):,} records {words}",
                ours=ms(large),
                peer=f"{ms(small)} with {first}",
                ratio=large / small,
                at_most=FLAT,
                why=_WHY[state, step],
            )
    waiting = found["waiting"]
    few, many = list(waiting)[-2], list(waiting)[-1]
    each = {size: 1000 * waiting[size]["backlog_ms"] / max(int(size), 1) for size in (few, many)}
    yield growth(
        what=f"counting a backlog, as metrics do, per 1,000 of {int(many):,} records that wait",
        ours=ms(each[many]),
        peer=f"{ms(each[few])} of {int(few):,}",
        ratio=each[many] / each[few],
        at_most=LINEAR,
        why="the records that wait are counted one by one, because a sink may not want some of "
        "them, and so many do not fit into the cache",
    )


def _sinks(found: Any) -> Iterator[Figure]:
    first, last = next(iter(found)), list(found)[-1]
    yield growth(
        what=f"one change to the last of {last} sinks, per sink",
        ours=ms(found[last]["last_ms"] / int(last)),
        peer=f"{ms(found[first]['last_ms'] / int(first))} with {first}",
        ratio=found[last]["last_ms"] / int(last) / (found[first]["last_ms"] / int(first)),
        at_most=LINEAR,
        why="the workers of all sinks share one interpreter",
    )


def notes(found: Any) -> Iterator[str]:
    """The tables."""
    grid, among = found["document"]["per_change_ms"], found["document"]["one_among"]
    yield (
        "Milliseconds per change (read, compared, committed and synced), by how many events change "
        "at once and how many resources each of them names:\n"
    )
    rows = [(size, *(f"{each:.3f}" for each in row.values())) for size, row in grid.items()]
    yield table(("events", *(f"of {names}" for names in grid)), rows)
    yield "One event changes among so many:\n"
    rows = [
        (size, f"{each['bytes']:,}", ms(each["json_ms"]), ms(each["moved_ms"]), ms(each["same_ms"]))
        for size, each in among.items()
    ]
    head = ("events", "bytes", "`json.loads` alone", "one changed", "the same document again")
    yield table(head, rows)
    yield "A store with so many records, each step for one change:\n"
    rows = [
        (f"{int(size):,}", words, *(ms(each[step]) for step in _TIMES), f"{each['mib']:g}")
        for state, words in _STATES.items()
        for size, each in found["store"][state].items()
    ]
    yield table(("records", "", *_TIMES.values(), "MiB on disk"), rows)
    yield (
        "The sizes take turns. Delivered records beyond the newest 1,000 are deleted, 500 after a "
        "poll, so that no commit waits for it.\n"
    )
    yield "One change to so many webhooks:\n"
    rows = [(size, ms(e["first_ms"]), ms(e["last_ms"])) for size, e in found["sinks"].items()]
    yield table(("sinks", "the first has it", "the last has it"), rows)


_STATES: Final = {"delivered": "that every sink has", "waiting": "that wait"}
_TIMES: Final = {
    "open_ms": "open at start",
    "commit_ms": "commit",
    "deliver_ms": "read and mark",
    "backlog_ms": "count the backlog",
}
_STEPS: Final = {
    "commit_ms": "commit of one change",
    "deliver_ms": "reading one record and marking it",
}
_SHORT: Final = "times as short as this vary so much on a machine that does other things too"
_SYNC: Final = "a commit ends with a sync, whose time varies more than this"
_WHY: Final = {
    ("delivered", "commit_ms"): _SYNC,
    ("waiting", "commit_ms"): _SYNC,
    ("delivered", "deliver_ms"): _SHORT,
    ("waiting", "deliver_ms"): _SHORT,
}
