"""The shape of what a bridge sends, as pydantic checks it: fields that the console does not know
are ignored, fields that it reads must have their type.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic_core import to_json

_BIGGEST = 2**63 - 1

Word = Annotated[str, StringConstraints(min_length=1, max_length=300)]
Text = Annotated[str, StringConstraints(max_length=20_000)]
Claim = Annotated[str, StringConstraints(min_length=1, max_length=600)]
"""What a token says: a bridge takes texts of up to 512 characters, and puts a word before some."""
VmId = Annotated[
    str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\s/+#\x00-\x1f]+$")
]
Sequence = Annotated[str, StringConstraints(pattern=r"^0[0-9]{19}$")]
"""Twenty digits; the first is 0, or the number would not fit into 63 bits."""
Moment = Annotated[
    str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$")
]


def _in_the_calendar(moment: str) -> str:
    """A moment that there is: lists are sorted by it, and pages show it. Half as dear as all else
    of a record, so that it is for events alone.
    """
    try:
        datetime.fromisoformat(moment).astimezone(UTC)
    except OverflowError:
        raise ValueError("the year is not one from 1 to 9999") from None
    return moment


NotBefore = Annotated[Moment, AfterValidator(_in_the_calendar)]
Duration = Annotated[int, Field(ge=-_BIGGEST, le=_BIGGEST)]
_NOT_IN_0_1_0: Final = ("resourceType", "eventSource", "durationInSeconds")
_OTHERS: Final = "the fingerprint is not that of the event"


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class VmModel(_Model):
    """`data.vm`."""

    vmId: VmId
    name: Word
    resourceId: Text | None = None
    subscriptionId: Word | None = None
    resourceGroup: Word | None = None
    location: Word | None = None
    zone: Text | None = None
    scaleSet: Text | None = None
    osType: Text | None = None
    vmSize: Text | None = None
    tags: dict[str, str] | None = None


class BridgeModel(_Model):
    """`data.bridge`."""

    version: Word
    instanceId: Word
    site: Word | None = None


class EventModel(_Model):
    """`data.event`."""

    eventId: Word
    eventType: Text | None = None
    resourceType: Text | None = None
    resources: list[Word] = Field(max_length=20_000)
    eventStatus: Word
    notBefore: NotBefore | None = None
    description: Text | None = None
    eventSource: Text | None = None
    durationInSeconds: Duration | None = None


def fingerprint_of(event: EventModel | PendingModel) -> str:
    """The hash of what an approver must have seen, as the bridge makes it.

    Of texts, lists and whole numbers with their keys in order, pydantic writes the same bytes as
    `canonical_json`, in a third of the time; there are thousands a second.
    """
    seen = {
        "durationInSeconds": event.durationInSeconds,
        "eventId": event.eventId,
        "eventSource": event.eventSource,
        "eventStatus": event.eventStatus,
        "eventType": event.eventType,
        "notBefore": event.notBefore,
        "resourceType": event.resourceType,
        "resources": sorted(event.resources),
    }
    return f"sha256:{sha256(to_json(seen)).hexdigest()}"


class ObservationModel(_Model):
    """`data.observation`."""

    noticeSeconds: float | None = None
    pauseSeconds: float | None = None
    restarted: bool | None = None
    downtimeSeconds: float | None = None
    goesOnWithoutThisVm: bool | None = None


class HeartbeatModel(_Model):
    """`data.heartbeat`."""

    # Zero is the test heartbeat of bridges up to version 0.2.0.
    intervalSeconds: Annotated[float, Field(ge=0, le=864_000)]
    lastRecordSequence: Sequence
    prepares: bool = False


class StartedModel(_Model):
    """`data.started`."""

    prepares: bool = False


class DataModel(_Model):
    """What every record's `data` has, and the parts that some types have."""

    vm: VmModel
    bridge: BridgeModel
    transition: Literal["scheduled", "updated", "started", "ended"] | None = None
    event: EventModel | None = None
    affectsThisVm: bool = False
    impact: Word | None = None
    revision: Annotated[int, Field(ge=1, le=_BIGGEST)] | None = None
    fingerprint: Word | None = None
    observation: ObservationModel = ObservationModel()
    heartbeat: HeartbeatModel | None = None
    started: StartedModel | None = None
    jti: Claim | None = None
    evt: Claim | None = None
    state: Word | None = None
    reason: Word | None = None
    actor: Claim | None = None
    rsn: Text | None = None
    act: Word | None = None
    evh: Word | None = None
    cause: Claim | None = None

    @model_validator(mode="after")
    def _is_what_it_shows(self) -> Self:
        # A person approves what is shown, and the VM compares the hash alone: a record that shows
        # other VMs under the hash of an event would have them approve what they have not seen.
        event, told = self.event, self.fingerprint
        if event is not None and told is not None and told != fingerprint_of(event):
            raise ValueError(_OTHERS)
        return self


class RecordModel(_Model):
    """The envelope."""

    specversion: Literal["1.0"]
    id: Word
    type: Word
    time: Moment
    dataschema: Word
    partitionkey: VmId
    sequence: Sequence
    stream: Word
    data: DataModel


class StatusModel(_Model):
    """The document on `…/status`."""

    status: Literal["online", "offline"]
    reason: Word | None = None
    time: Moment | None = None
    version: Word
    session: Word
    commands: bool = False
    prepares: bool = False
    vm: Any = None


class PendingModel(_Model):
    """One event of `…/state`."""

    recordId: Word
    eventId: Word
    eventType: Text | None = None
    eventStatus: Word
    notBefore: NotBefore | None = None
    resources: list[Word] = Field(max_length=20_000)
    affectsThisVm: bool
    impact: Word | None = None
    revision: Annotated[int, Field(ge=1, le=_BIGGEST)]
    fingerprint: Word
    resourceType: Text | None = None
    eventSource: Text | None = None
    durationInSeconds: Duration | None = None
    preparation: Literal["none", "preparing", "prepared", "failed"] | None = None

    @model_validator(mode="after")
    def _is_what_it_shows(self) -> Self:
        if self.is_whole and self.fingerprint != fingerprint_of(self):
            raise ValueError(_OTHERS)
        return self

    @property
    def is_whole(self) -> bool:
        """Whether all is there that its fingerprint covers; bridges of version 0.1.0 send less."""
        return self.model_fields_set.issuperset(_NOT_IN_0_1_0)


class StateModel(_Model):
    """The document on `…/state`."""

    time: Moment
    vm: Any = None
    events: list[PendingModel] = Field(max_length=10_000)
