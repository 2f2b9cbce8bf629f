"""What an entry of a document is to IMDS and to a record, by the documentation alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

MISSING: Final = object()
VM_NAME: Final = "web_3"
IMPACTS: Final = {
    "freeze": "pause",
    "reboot": "restart",
    "redeploy": "redeploy",
    "preempt": "delete",
    "terminate": "delete",
}
NAMES: Final = {
    "EventType": "eventType",
    "ResourceType": "resourceType",
    "Resources": "resources",
    "EventStatus": "eventStatus",
    "NotBefore": "notBefore",
    "Description": "description",
    "EventSource": "eventSource",
    "DurationInSeconds": "durationInSeconds",
}


@dataclass(frozen=True, slots=True)
class Spelling:
    """What stands in a field, and what that means."""

    raw: Any
    read: Any

    @property
    def unread(self) -> Any:
        """What is told of a field by its raw text alone; None where that is nothing."""
        if isinstance(self.read, list):  # of Resources, a list of names is wholly read
            read = isinstance(self.raw, list) and len(self.raw) == len(self.read)
            return None if read or self.raw is MISSING else self.raw or None
        blank = self.raw in (None, MISSING, -1) or (
            isinstance(self.raw, str) and not self.raw.strip()
        )
        return None if blank or self.read not in (None, "Unknown") else self.raw


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of Events, without its id."""

    fields: Mapping[str, Spelling]
    """By Azure's names."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What no documentation mentions."""

    def raw(self, event_id: Any) -> dict[str, Any]:
        """As it stands in a document."""
        known = {name: each.raw for name, each in self.fields.items() if each.raw is not MISSING}
        return {"EventId": event_id, **known, **self.extra}

    def wire(self, event_id: str) -> dict[str, Any]:
        """As it stands in a record; the order of resources means nothing."""
        read = {wire: self.fields[azure].read for azure, wire in NAMES.items()}
        return {"eventId": event_id, **read, "resources": sorted(read["resources"])}

    @property
    def status(self) -> str:
        found: str = self.fields["EventStatus"].read
        return found

    @property
    def affects(self) -> bool:
        """Whether it names the VM of the tests."""
        return VM_NAME in [name.lower() for name in self.fields["Resources"].read]

    @property
    def impact(self) -> str | None:
        """What type and duration mean."""
        impact = IMPACTS.get((self.fields["EventType"].read or "").lower())
        brief = impact == "pause" and self.fields["DurationInSeconds"].read == 0
        return "none" if brief else impact

    def facts(self) -> dict[str, object]:
        """What makes it news, each by the name that a record calls it."""
        told = {
            wire: tagged([self.wire("")[wire], clean(self.fields[azure].unread)])
            for azure, wire in NAMES.items()
        }
        return {**told, **{name: tagged(clean(value)) for name, value in self.extra.items()}}


@dataclass(frozen=True, slots=True)
class Written:
    """How a document is put into bytes, and what stands around its events."""

    incarnation: Any = 1
    extra: Mapping[str, Any] = field(default_factory=dict)
    indent: int | None = None
    ascii: bool = True
    mark: bool = False
    backwards: bool = False
    """Whether the keys of each object come in the opposite order."""

    def body(self, entries: Sequence[object]) -> bytes:
        """The document of these entries."""
        document = {"DocumentIncarnation": self.incarnation, "Events": list(entries), **self.extra}
        made = {name: value for name, value in document.items() if value is not MISSING}
        if self.backwards:
            made = _backwards(made)
        try:
            text = json.dumps(made, indent=self.indent, ensure_ascii=self.ascii).encode()
        except UnicodeEncodeError:  # half a character pair can only be written as an escape
            text = json.dumps(made, indent=self.indent).encode()
        return b"\xef\xbb\xbf" * self.mark + text

    @property
    def number(self) -> int | None:
        """The incarnation as a record has it: a whole number that everybody can hold."""
        number = self.incarnation
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            return None
        return int(number) if number % 1 == 0 and -(2**63) <= number < 2**63 else None


def clean(value: Any) -> Any:
    """The same without half character pairs, which no UTF-8 can hold."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [clean(each) for each in value]
    if isinstance(value, dict):
        return {clean(name): clean(each) for name, each in value.items()}
    return value


def tagged(value: Any) -> object:
    """A value that equals another one where both are the same JSON: true is no 1, and 1.0 is."""
    if isinstance(value, dict):
        return {name: tagged(each) for name, each in value.items()}
    if isinstance(value, list):
        return [tagged(each) for each in value]
    return ("truth" if isinstance(value, bool) else "other", value)


def _backwards(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _backwards(value[name]) for name in reversed(value)}
    return [_backwards(each) for each in value] if isinstance(value, list) else value
