"""The environment variables of a program: no secret, and only safe characters in each value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wire.event import Event
from wire.fields import fields_of
from wire.record import Record

_OURS: Final = "SEB_"
# What a service manager means for its service alone: systemd's credentials hold secrets, and who
# has the sockets could speak in the bridge's name (systemd.exec(5), sd_notify(3)).
_OF_THE_SERVICE: Final = frozenset(
    (
        "CREDENTIALS_DIRECTORY",
        "FDSTORE",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "MAINPID",
        "LISTEN_FDNAMES",
        "LISTEN_FDS",
        "LISTEN_PID",
        "NOTIFY_SOCKET",
        "STATE_DIRECTORY",
        "MEMORY_PRESSURE_WATCH",
        "MEMORY_PRESSURE_WRITE",
        "SYSTEMD_EXEC_PID",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
    )
)
# A dash in front would make a name an option. cmd.exe expands %NAME% before it looks for `&`, so
# quoting does not help; and with `..` and a slash a file name leads elsewhere. What Azure really
# sends is made of these signs.
_UNSAFE: Final = re.compile(r"^-|[^A-Za-z0-9._:+-]")
_MAX_CHARACTERS: Final = 1000
# Windows: 32,767 characters for a variable with its name. Linux: 131,072 bytes.
_MAX_LIST_CHARACTERS: Final = 30_000

Value = Callable[[Record], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable, and where its value is in a record."""

    name: str
    meaning: str
    value: Value


def _data(dotted: str) -> Value:
    """Return a function that reads the value at a path below `data`; None if a record has no such
    path.
    """
    path = dotted.split(".")

    def value(record: Record) -> object:
        found: Any = record.data
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    return value


def _count(record: Record) -> object:
    names = _data("event.resources")(record)
    return len(names) if isinstance(names, list) else None


# The name without `SEB_EVENT_` in front, the meaning, and where the value is: a path below `data`.
_TABLE: Final[tuple[tuple[str, str, str | Value], ...]] = (
    ("TYPE", "Type of the record, such as `seb.event.scheduled.v1`", lambda record: record.type),
    (
        "RECORD_ID",
        "Id of the record, the same each time it is handed over",
        lambda record: record.id,
    ),
    ("TRANSITION", "`scheduled`, `updated`, `started` or `ended`", "transition"),
    ("ID", "EventId", "event.eventId"),
    ("EVENT_TYPE", "Azure's word, such as `Freeze` or `Reboot`", "event.eventType"),
    (
        "STATUS",
        "Azure's word, as `Scheduled`; at the end `Completed`, `Canceled` or `Unknown`",
        "event.eventStatus",
    ),
    ("SOURCE", "`Platform` or `User`", "event.eventSource"),
    ("NOT_BEFORE", "Earliest start, RFC 3339 in UTC", "event.notBefore"),
    ("DURATION", "Expected seconds of interruption", "event.durationInSeconds"),
    ("IMPACT", "On the VM: `none`, `pause`, `restart`, `redeploy` or `delete`", "impact"),
    ("AFFECTS_THIS_VM", "`true` if the event names this VM", "affectsThisVm"),
    ("RESOURCES", "Names of the VMs that it names, one a line", "event.resources"),
    ("RESOURCE_COUNT", "How many those are", _count),
    ("REVISION", "Grows with each change of the event", "revision"),
    ("FINGERPRINT", "The same on every VM that sees this state", "fingerprint"),
    ("VM_NAME", "Name of this VM, as events name it", "vm.name"),
)
LEFT_OUT: Final = {"description": "free text", "resourceType": "always VirtualMachine"}
"""The fields of an event without a variable, and why."""


def _further() -> Iterator[tuple[str, str, str]]:
    """Yield the fields of an event that have no line in the table, each under its own name."""
    listed = {path for _, _, path in _TABLE}
    for each in fields_of(Event):
        path = f"event.{each.wire}"
        if path not in listed and each.wire not in LEFT_OUT:
            yield each.attribute.upper(), each.field.doc, path


VARIABLES: Final = tuple(
    Variable(
        name=f"SEB_EVENT_{name}",
        meaning=meaning,
        value=_data(path) if isinstance(path, str) else path,
    )
    for name, meaning, path in (*_TABLE, *_further())
)
"""Every one is set for every record; it is empty if the record has no such value."""


def environment(record: Record, parent: Mapping[str, str]) -> dict[str, str]:
    """Return the parent's environment without the bridge's own variables, and with the record's."""
    # Names have no case on Windows, and the bridge reads its own without it everywhere.
    kept = {
        name: value
        for name, value in parent.items()
        if not name.upper().startswith(_OURS) and name.upper() not in _OF_THE_SERVICE
    }
    return kept | {each.name: _text(each.value(record)) for each in VARIABLES}


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return _lines(value)
    return _UNSAFE.sub("_", str(value)[:_MAX_CHARACTERS])


def _lines(values: Sequence[object]) -> str:
    """Return as many whole names as fit into a variable; another variable has their number."""
    lines: list[str] = []
    room = _MAX_LIST_CHARACTERS
    for line in map(_text, values):
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    return "\n".join(lines)
