"""The event: its fields, its fingerprint, its impact, and the data of a record about it.

Each field of an event is defined in the class `Event`, and nowhere else. A new field is not part of
the fingerprint: the fingerprints of older bridges must stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated, Any, Final

from wire.fields import (
    BOOLEAN,
    FINGERPRINT,
    ID,
    MOMENT,
    OBJECT,
    TEXT,
    WORD,
    Field,
    FieldType,
    fields_of,
    list_of,
    number,
    object_of,
    one_of,
    or_null,
    to_object,
    whole_number,
    word_of,
)
from wire.observer import Observer
from wire.strictjson import canonical_json

UNKNOWN_STATUS: Final = "Unknown"
"""The status where IMDS sends none, and where it is not known how an event ended."""
STATUSES: Final = ("Scheduled", "Started", "Completed", "Canceled")
"""The statuses that the bridge acts on; it passes every other status on unchanged."""
TRANSITIONS: Final = ("scheduled", "updated", "started", "ended")
AZURE_TYPES: Final = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
"""The types of events that have an effect on a VM, as Azure's documentation lists them."""
AZURE_WORDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"event_type": AZURE_TYPES, "event_source": ("Platform", "User")}
)
"""Azure's words for each field of an event that a rule or a group can list."""
IMPACTS: Final = ("none", "pause", "restart", "redeploy", "delete")
IMPACT_OF: Final = {
    "freeze": "pause",
    "reboot": "restart",
    "redeploy": "redeploy",
    "preempt": "delete",
    "terminate": "delete",
    # Azure: a recommendation; it has no effect on the VM, and neither has its acknowledgement.
    "spotrebalancerecommendation": "none",
}
"""The impact of each type of event, in small letters, on a VM that the event names."""
_DURATION: Final = FieldType(whole_number(least=0).schema, whole_number(least=-1).read)
"""Azure's -1, which says that the duration is not known, is read too."""
_RAW: Final = FieldType(
    OBJECT.schema, lambda value: value if isinstance(value, Mapping) else {}, dict
)
"""Any value is read: this is only for people to look at."""
MEASURED: Final = ("pauseSeconds", "restarted", "downtimeSeconds")
"""Fields of an observation that are only in records of `started` and `ended`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`data.event`: an event in Azure's words. The name of a field in IMDS's document is its name
    on the wire, with a capital letter. None: IMDS does not say it in a readable form.
    """

    event_id: Annotated[
        str,
        Field(ID, "Azure's id of the event; compare without regard to case", in_fingerprint=True),
    ]
    event_type: Annotated[
        str | None,
        Field(
            or_null(TEXT),
            "Freeze, Reboot, Redeploy, Preempt, Terminate, or a word newer than this schema",
            in_fingerprint=True,
        ),
    ]
    resource_type: Annotated[
        str | None, Field(or_null(TEXT), "Usually VirtualMachine", in_fingerprint=True)
    ]
    resources: Annotated[
        tuple[str, ...],
        Field(
            list_of(WORD),
            "Names of every VM that the event affects, in IMDS's order",
            in_fingerprint=True,
        ),
    ]
    event_status: Annotated[
        str,
        Field(
            ID,
            "Azure's word as sent: Scheduled, Started, or what newer api-versions say, such as "
            "Advisory; at the end Completed, Canceled, or Unknown where it was not seen how it "
            "ended",
            in_fingerprint=True,
        ),
    ]
    not_before: Annotated[
        datetime | None,
        Field(
            or_null(MOMENT),
            "Earliest start, RFC 3339 UTC; null once started, or where it cannot be read "
            "(see data.raw)",
            in_fingerprint=True,
        ),
    ]
    description: Annotated[str | None, Field(or_null(TEXT), "Azure's description")]
    event_source: Annotated[
        str | None, Field(or_null(TEXT), "Platform or User", in_fingerprint=True)
    ]
    duration_in_seconds: Annotated[
        int | None,
        Field(
            or_null(_DURATION),
            "Expected interruption in seconds; null when unknown",
            in_fingerprint=True,
        ),
    ]

    @property
    def key(self) -> str:
        """The key of the event: its id in small letters, because IMDS and ARM write it
        differently.
        """
        return self.event_id.casefold()

    @property
    def impact(self) -> str | None:
        """The impact on a VM that is named, from type and duration; None for an unknown type."""
        impact = IMPACT_OF.get((self.event_type or "").casefold())
        # Azure: a duration of 0 says that there is no interruption. Only a pause can be that
        # short; a restart or a deletion is felt whatever the announced duration.
        return "none" if impact == "pause" and self.duration_in_seconds == 0 else impact

    @property
    def is_news(self) -> bool:
        """Whether the event is only information, by its status."""
        return is_news(self.event_status)

    @property
    def fingerprint(self) -> str:
        """The hash of everything an approver must have seen: the same on every VM that sees the
        event.
        """
        return fingerprint(self.to_wire())

    def affects(self, vm_name: str) -> bool:
        """Check whether `resources` names the VM: the whole name, without regard to case."""
        name = vm_name.casefold()
        return any(resource.casefold() == name for resource in self.resources)

    def to_wire(self) -> dict[str, Any]:
        """Return the object for `data.event` of a record."""
        return to_object(self)


EVENT_FIELDS: Final = {each.wire: each.field for each in fields_of(Event)}
"""The fields of an event by their names on the wire, in their order."""
FINGERPRINTED: Final = tuple(name for name, field in EVENT_FIELDS.items() if field.in_fingerprint)
NOT_FINGERPRINTED: Final = tuple(name for name in EVENT_FIELDS if name not in FINGERPRINTED)
"""The fields in which two reports with one fingerprint can differ, besides the impact."""
_SEEN: Final = tuple(
    "resources (sorted)" if name == "resources" else name for name in FINGERPRINTED
)


def azure_name(name: str) -> str:
    """Return the name in IMDS's document of the field with this name on the wire."""
    return name[0].upper() + name[1:]


def is_news(status: object) -> bool:
    """Check whether a pending event with this status is only information: such an event has no due
    time and cannot be approved.
    """
    return status not in ("Scheduled", "Started")


def fingerprint(event: Mapping[str, Any]) -> str:
    """Return the fingerprint of an event given as its object on the wire; a missing field counts as
    null.
    """
    seen = {name: event.get(name) for name in FINGERPRINTED}
    seen["resources"] = sorted(event["resources"])
    return f"sha256:{sha256(canonical_json(seen)).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnations:
    """`data.document`: the IMDS document that showed the event."""

    incarnation: Annotated[int | None, Field(or_null(whole_number()), "DocumentIncarnation")]
    previous_incarnation: Annotated[
        int | None, Field(or_null(whole_number()), "DocumentIncarnation of the document before")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """`data.observation`: how the transition was observed, and on `started` and `ended` the
    measured times. None: not known.
    """

    notice_seconds: Annotated[
        float | None,
        Field(
            or_null(number()),
            "notBefore minus the time at which the event was first seen, in seconds",
        ),
    ]
    gap_seconds: Annotated[
        float | None,
        Field(
            or_null(number()),
            "Seconds without a poll before this observation; null on the very first",
        ),
    ]
    latency_ms: Annotated[
        float | None, Field(or_null(number()), "Milliseconds that IMDS took to answer")
    ]
    pause_seconds: Annotated[
        float | None,
        Field(
            or_null(number()),
            "On started and ended: seconds that this VM was measured to stand still since the "
            "event was first seen; null: none measured. A wall clock that is set forward by up to "
            "two minutes looks the same",
            is_optional=True,
        ),
    ] = None
    restarted: Annotated[
        bool | None,
        Field(
            or_null(BOOLEAN),
            "On started and ended: this VM's boot id changed since the event was first seen; "
            "null: not known",
            is_optional=True,
        ),
    ] = None
    downtime_seconds: Annotated[
        float | None,
        Field(
            or_null(number()),
            "On started and ended: seconds between the last look before that restart and the "
            "first one after it",
            is_optional=True,
        ),
    ] = None
    goes_on_without_this_vm: Annotated[
        bool | None,
        Field(
            BOOLEAN,
            "On ended: the event no longer names this VM and goes on without it, where SEB_SCOPE "
            "is self; its status is then Unknown",
            is_optional=True,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventData(Observer):
    """`data` of a record about an event."""

    transition: Annotated[str, Field(one_of(*TRANSITIONS), "What changed about the event")]
    event: Annotated[Event, Field(object_of(Event, ref="event"))]
    affects_this_vm: Annotated[bool, Field(BOOLEAN, "Whether resources names this VM")]
    concerns_this_vm: Annotated[
        bool | None,
        Field(
            BOOLEAN,
            "Whether it is for a reader who follows events of this VM alone: the event names this "
            "VM, or it named this VM until this record, or it is over and has named this VM",
            is_optional=True,
        ),
    ] = None
    impact: Annotated[
        str | None,
        Field(
            word_of(*IMPACTS, None),
            "What the type and the duration mean for the VM; null for a type that is not known",
        ),
    ]
    revision: Annotated[
        int,
        Field(
            whole_number(least=1),
            "1, 2, 3 … per event, growing on through ended and through a return",
        ),
    ]
    changed: Annotated[
        tuple[str, ...] | None,
        Field(
            list_of(TEXT, least=1),
            "On updated: names of the fields that changed; only affectsThisVm if the VM has "
            "another name",
            is_optional=True,
        ),
    ] = None
    fingerprint: Annotated[
        str,
        Field(
            FINGERPRINT,
            "sha256 of the canonical JSON of the object of "
            f"{', '.join(_SEEN[:-1])} and {_SEEN[-1]}",
        ),
    ]
    document: Annotated[
        Incarnations, Field(object_of(Incarnations), "The IMDS document that showed it")
    ]
    observation: Annotated[Observation, Field(object_of(Observation, ref="observation"))]
    raw: Annotated[
        Mapping[str, Any],
        Field(_RAW, "The IMDS object, untouched; on ended, as last seen"),
    ] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """Return the object for `data` of a record."""
        written = to_object(self)
        if self.transition not in ("started", "ended"):
            for name in MEASURED:
                del written["observation"][name]
        return written
