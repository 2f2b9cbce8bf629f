"""A store with a backlog, what may happen to its files, and what its next user makes of it: without
a process around it, so that hundreds of damages are tried in seconds.
"""

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from support.store_helpers import NOW, draft, event_row, recipients

from bridge.service.ownership import open_readable
from bridge.store.database import Store, StoreError
from bridge.store.opening import FILE_NAME, open_store
from bridge.store.outbox import Outbox
from sinks.shared.errors import SebError
from wire.record import Record

RECORDS: Final = 40
BEHIND: Final = {"quick": RECORDS, "slow": 13}
"""How many records each sink has had."""
OPENINGS: Final = 4
"""A bridge that finds damage in use ends, and the next one begins; so often at most."""


@dataclass(slots=True)
class Found:
    """What came of a store."""

    refused: str | None = None
    """Why it was not opened, in the bridge's words."""
    resets: list[str] = field(default_factory=list)
    got: dict[str, list[Record]] = field(default_factory=lambda: {each: [] for each in BEHIND})
    dead: set[tuple[str, int]] = field(default_factory=set)


class Original:
    """A store as it was left: closed, with all in its file, or killed, with all in its log."""

    def __init__(self, home: Path, *, killed: bool) -> None:
        self.directory = home / "original"
        store, _ = open_store(home / "store", NOW)
        outbox = Outbox(store)
        outbox.register(recipients(*BEHIND))
        self.records: dict[int, Record] = {}
        for number in range(1, RECORDS + 1):
            events = [event_row(f"E-{number}", pending=number > RECORDS - 4)]
            (record,) = store.commit([draft(number)], events=events, meta={"incarnation": "1"})
            self.records[record.sequence] = record
        store.mark_polled(NOW)
        for sink, count in BEHIND.items():
            while (batch := outbox.next(sink, 1)) and batch.cursor <= count:
                outbox.move_past(sink, batch)
        if not killed:
            store.close()
        shutil.copytree(home / "store", self.directory)
        store.close()

    def copy(self, to: Path) -> Path:
        """A copy to be damaged."""
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.directory, to)
        return to


def _cut(data: bytearray, draw: random.Random) -> None:
    del data[draw.randrange(len(data)) :]


def _flip_a_bit(data: bytearray, draw: random.Random) -> None:
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _change_a_byte(data: bytearray, draw: random.Random) -> None:
    data[draw.randrange(len(data))] ^= draw.randrange(1, 256)


def _change_many(data: bytearray, draw: random.Random) -> None:
    for _ in range(draw.randint(2, 50)):
        _change_a_byte(data, draw)


def _lose_a_sector(data: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(data)) & ~511
    data[at : at + 512] = bytes(len(data[at : at + 512]))


def _swap_pages(data: bytearray, draw: random.Random) -> None:
    one, other = (draw.randrange(len(data) // 4096) * 4096 for _ in range(2))
    data[one : one + 4096], data[other : other + 4096] = (
        data[other : other + 4096],
        data[one : one + 4096],
    )


DAMAGES: Final[Mapping[str, Callable[[bytearray, random.Random], None]]] = {
    "cut off": _cut,
    "a bit flipped": _flip_a_bit,
    "a byte changed": _change_a_byte,
    "many bytes changed": _change_many,
    "a sector of zeros": _lose_a_sector,
    "pages swapped": _swap_pages,
}


def damage(directory: Path, kind: str, draw: random.Random, *, log: bool) -> None:
    """Let that happen to the store's file, or to its log."""
    path = directory / (f"{FILE_NAME}-wal" if log else FILE_NAME)
    data = bytearray(path.read_bytes())
    DAMAGES[kind](data, draw)
    path.write_bytes(data)


def drain(directory: Path) -> Found:
    """Open it and deliver everything, as often as a service manager would start that again."""
    found = Found()
    for _ in range(OPENINGS):
        try:
            store, reset = open_readable(directory, NOW)
        except SebError as error:
            found.refused = str(error)
            return found
        found.resets += [reset.reason] if reset else []
        try:
            _deliver(store, found)
        except StoreError:
            assert store.damaged, "it fails, and will fail again and again"
        finally:
            store.close()
        if not store.damaged:
            return found
    raise AssertionError("there is no end of damage")


def _deliver(store: Store, found: Found) -> None:
    store.last_seen()
    outbox = Outbox(store)
    outbox.register(recipients(*BEHIND))
    for sink in BEHIND:
        while batch := outbox.next(sink, 7):
            if batch.damaged is None:
                found.got[sink] += batch.records
                outbox.move_past(sink, batch)
                continue
            sequence = batch.records[0].sequence
            found.dead.add((sink, sequence))
            outbox.mark_dead(sink, sequence, reason=batch.damaged, attempts=0, now=NOW)
