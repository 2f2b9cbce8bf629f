"""What strace (`-f -ttt -yy`) saw of a bridge: when each record was written, synced, and sent."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

CALLS: Final = ("pwrite64", "fdatasync", "write", "writev", "sendto", "sendmsg")
_SYNC: Final = "fdatasync"
_STORE: Final = "seb.db-wal"
_LINE: Final = re.compile(r"^(?P<pid>\d+) +\d+\.\d+ (?P<rest>.*)$")
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(slots=True)
class Trail:
    """The places in the log that tell of one record; None for never."""

    written: int | None = None
    """It first stood in the store's log."""
    writer: str = ""
    synced: int | None = None
    """The first sync of its writer that began after that had ended."""
    sent: dict[str, int] = field(default_factory=dict)
    """By destination: where it was first sent there."""


def follow(lines: Iterable[str], ids: Iterable[str]) -> dict[str, Trail]:
    """The trail of each record, by its id."""
    trails = {each: Trail() for each in ids}
    syncing: dict[str, list[Trail]] = {}
    for place, (pid, rest) in enumerate(_parsed(lines)):
        if rest.startswith(f"<... {_SYNC} resumed"):
            _synced(syncing.pop(pid, []), place, rest)
        elif rest.startswith(_SYNC) and _STORE in rest:
            waiting = [
                each for each in trails.values() if each.writer == pid and each.synced is None
            ]
            if "unfinished" in rest:
                syncing[pid] = waiting
            else:
                _synced(waiting, place, rest)
        elif not rest.startswith("<..."):
            for record_id in set(_ID.findall(rest)) & trails.keys():
                _note(trails[record_id], pid, rest, place)
    return trails


def _parsed(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if found := _LINE.match(line):
            yield found["pid"], found["rest"]


def _synced(trails: Iterable[Trail], place: int, rest: str) -> None:
    if rest.rstrip().endswith("= 0"):
        for trail in trails:
            trail.synced = place


def _note(trail: Trail, pid: str, rest: str, place: int) -> None:
    target = _target(rest)
    if _STORE in target:
        if trail.written is None:
            trail.written, trail.writer = place, pid
    elif "seb.db" not in target:
        trail.sent.setdefault(target, place)


def _target(rest: str) -> str:
    """What the call's descriptor stands for, as `-yy` says: `7</path>` or `9<TCP:[…]>`."""
    found = re.match(r"\w+\(\d+<(.*?)>(?:,|\))", rest)
    return found[1] if found else ""
