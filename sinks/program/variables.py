"""What a program finds in its environment: no secret, and each value one safe word."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
_LONGEST: Final = 1000
# Windows: 32,767 characters for a variable with its name. Linux: 131,072 bytes.
_LONGEST_LIST: Final = 30_000

Value = Callable[[Record], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable, and where its value is in a record."""

    name: str
    meaning: str
    value: Value


def _data(*path: str) -> Value:
    """The value at a place below `data`; None if a record has no such place."""

    def value(record: Record) -> object:
        found: Any = record.data
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    return value


def _count(record: Record) -> object:
    names = _data("event", "resources")(record)
    return len(names) if isinstance(names, list) else None


VARIABLES: Final = tuple(
    Variable(name=f"SEB_EVENT_{name}", meaning=meaning, value=value)
    for name, meaning, value in (
        ("TYPE", "Type of the record, such as `seb.event.scheduled.v1`", lambda r: r.type),
        ("RECORD_ID", "Id of the record, the same each time it is handed over", lambda r: r.id),
        ("TRANSITION", "`scheduled`, `updated`, `started` or `ended`", _data("transition")),
        ("ID", "EventId", _data("event", "eventId")),
        ("EVENT_TYPE", "Azure's word, such as `Freeze` or `Reboot`", _data("event", "eventType")),
        (
            "STATUS",
            "Azure's word, as `Scheduled`; at the end `Completed`, `Canceled` or `Unknown`",
            _data("event", "eventStatus"),
        ),
        ("SOURCE", "`Platform` or `User`", _data("event", "eventSource")),
        ("NOT_BEFORE", "Earliest start, RFC 3339 in UTC", _data("event", "notBefore")),
        ("DURATION", "Expected seconds of interruption", _data("event", "durationInSeconds")),
        (
            "IMPACT",
            "On the VM: `none`, `pause`, `restart`, `redeploy` or `delete`",
            _data("impact"),
        ),
        ("AFFECTS_THIS_VM", "`true` if the event names this VM", _data("affectsThisVm")),
        ("RESOURCES", "Names of the VMs that it names, one a line", _data("event", "resources")),
        ("RESOURCE_COUNT", "How many those are", _count),
        ("REVISION", "Grows with each change of the event", _data("revision")),
        ("FINGERPRINT", "The same on every VM that sees this state", _data("fingerprint")),
        ("VM_NAME", "Name of this VM, as events name it", _data("vm", "name")),
    )
)
"""Every one is set for every record; empty if the record has no such value."""


def environment(record: Record, parent: Mapping[str, str]) -> dict[str, str]:
    """The parent's environment without what is the bridge's own, and the record's variables."""
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
    return _UNSAFE.sub("_", str(value)[:_LONGEST])


def _lines(values: Sequence[object]) -> str:
    """As many whole names as there is room for; the count tells of the rest."""
    lines: list[str] = []
    room = _LONGEST_LIST
    for line in map(_text, values):
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    return "\n".join(lines)
