"""A notice: one fact, with its text and its link."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal
from uuid import UUID, uuid5

from sinks.shared.text import visible
from wire.record import Record, RecordDraft, seal

NoticeKind = Literal[
    "decision-due",
    "undecided",
    "vm-silent",
    "vm-not-back",
    "vm-heard",
    "vm-retired",
    "vm-conflict",
    "vm-conflict-over",
    "approval-failed",
    "turn-forced",
    "turn-stuck",
    "event-over",
    "audit-head",
]
TYPE: Final = "seb.console.{kind}.v1"
_NAMESPACE: Final = UUID("0f0c3f6c-2b6a-5f52-9d3e-6f2a7a3f3c11")
_MAX_CHARACTERS: Final = 100
"""The limit of a text from outside: Azure's names have at most 64 characters, and a chat takes a
few thousand in all.
"""
MAX_REASON_CHARACTERS_SHOWN: Final = 300
_ENDS: Final = ("vm-heard", "vm-retired", "vm-conflict-over", "event-over")
"""The kinds that say that something is over: a pager resolves its incident."""


def short(text: str, *, most: int = _MAX_CHARACTERS) -> str:
    """Return a text from outside for a notice: on one line, without invisible characters, and with
    at most `most` characters.
    """
    written = visible(text[: most + 1])
    return written if len(written) <= most else f"{written[: most - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One fact of which people are informed. `at` in seconds since 1970. `key` makes its id: the
    same key gives the same id at every console and after every restart.
    """

    kind: NoticeKind
    subject: str
    """The id of the event or of the VM; `audit` for the audit's head."""
    scope: str | None = None
    """The scope of the event, if it is about one."""
    is_other: bool = False
    """Whether people who know only this id mean an event of another scope."""
    key: tuple[object, ...]
    at: float
    title: str
    text: str
    path: str
    """The path of the page that shows it, below the console's address."""
    event: Mapping[str, Any] | None = None
    """The event in the form that records have in `data.event`."""
    transition: str | None = None
    impact: str | None = None
    vm: Mapping[str, Any] = field(default_factory=dict)
    """`vmId` and `name` of the VM that it is about, or of the first that the event names."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `data.notice`."""

    @property
    def id(self) -> str:
        """The record's id."""
        other = [self.scope] if self.is_other else []
        return str(uuid5(_NAMESPACE, json.dumps([self.kind, self.subject, *self.key, *other])))

    @property
    def incident(self) -> str:
        """The key of the incident: the notice that opens it and the one that ends it share it."""
        if not self.is_other:
            return self.subject
        return f"{self.subject} {uuid5(_NAMESPACE, self.scope or '')}"

    def sealed(self, *, number: int, stream: str, base: str, site: str) -> Record:
        """Return the notice as a record: CloudEvents 1.0, like those of a bridge.

        `base` is the console's address in links. `data` has `vm`, `event` if it is about one, as a
        bridge's records have them, and `notice`: kind, title, text, link, key (the `incident`) and
        ends (true if this notice ends it).
        """
        data: dict[str, Any] = {
            "vm": {"name": "console", "vmId": "", **self.vm},
            "notice": {
                "kind": self.kind,
                "title": self.title,
                "text": self.text,
                "link": base + self.path,
                "key": self.incident,
                "ends": self.kind in _ENDS,
                **self.more,
            },
            "bridge": {"site": site},
        }
        if self.event is not None:
            data |= {
                "event": dict(self.event),
                "transition": self.transition,
                "impact": self.impact,
                "affectsThisVm": True,
            }
        draft = RecordDraft(
            id=self.id,
            type=TYPE.format(kind=self.kind),
            source=base,
            subject=self.path.removeprefix("/"),
            time=datetime.fromtimestamp(self.at, UTC),
            partition_key=self.subject,
            data=data,
        )
        return seal(draft, sequence=number, stream=stream)
