"""The marks of the sink on its node, and how they are removed; values in, values out.

One annotation says which marks are the sink's: for which events, and whether it was this sink that
cordoned. It is written in the same request as the taint and the cordon, so that a crash cannot
separate them. The next bridge, restarted or on another VM under the same name, removes what belongs
to ended events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

DOMAIN: Final = "scheduled-events-bridge"
ANNOTATION: Final = f"{DOMAIN}/marks"
TAINT: Final = f"{DOMAIN}/event"
CONDITION: Final = "ScheduledEvent"
_VERSION: Final = 1


class ConflictError(Exception):
    """The node was changed since it was read, so it has to be read again, and marked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The mark of one event that is coming to the node."""

    event_type: str
    not_before: str | None
    """RFC 3339; None once the event has started, or if Azure gave no time."""
    acts: bool
    """Whether it taints, cordons and drains; if not, it is only shown."""
    vm_id: str
    """The vmId of the VM whose bridge marked it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """All the marks of this sink on a node."""

    events: Mapping[str, Mark] = field(default_factory=dict)
    """By eventId in small letters."""
    is_cordoned: bool = False
    """Whether this sink cordoned the node: it never removes a cordon of somebody else."""
    is_reopened: bool = False
    """Whether somebody else has uncordoned the node since this sink cordoned it for these events. A
    cordon that comes after that is theirs.
    """

    @property
    def nearest(self) -> Mark | None:
        """Return the event that comes first: one that has started, or else the one with the
        earliest notBefore.
        """
        if not self.events:
            return None
        return min(self.events.values(), key=lambda each: (each.not_before or "", each.event_type))

    @property
    def has_acting_event(self) -> bool:
        """Whether an event on the node taints, cordons and drains."""
        return any(each.acts for each in self.events.values())

    def acts_for(self, key: str) -> bool:
        """Check whether that event is on the node and taints, cordons and drains."""
        mark = self.events.get(key)
        return mark is not None and mark.acts


def read_marks(annotations: Mapping[str, str] | None) -> Marks:
    """Return the marks in a node's annotations; none if the annotation is not the sink's."""
    try:
        found = json.loads((annotations or {})[ANNOTATION])
        events = {
            str(key): Mark(
                event_type=str(each["type"]),
                not_before=None if each["notBefore"] is None else str(each["notBefore"]),
                acts=each["acts"] is True,
                vm_id=str(each["vmId"]),
            )
            for key, each in found["events"].items()
        }
        return Marks(
            events=events,
            is_cordoned=found["cordoned"] is True,
            is_reopened=found.get("reopened") is True,
        )
    except (KeyError, ValueError, TypeError, AttributeError):
        return Marks()


def marks_on(node: Mapping[str, Any]) -> Marks:
    """Return the sink's marks that are on a node."""
    return read_marks(node["metadata"].get("annotations"))


def dump_marks(marks: Marks) -> str | None:
    """Return the text of the annotation; None if no mark is left."""
    if not marks.events and not marks.is_cordoned:
        return None
    events = {
        key: {
            "type": each.event_type,
            "notBefore": each.not_before,
            "acts": each.acts,
            "vmId": each.vm_id,
        }
        for key, each in sorted(marks.events.items())
    }
    found: dict[str, Any] = {"version": _VERSION, "cordoned": marks.is_cordoned, "events": events}
    if marks.is_reopened:
        found["reopened"] = True
    return json.dumps(found, separators=(",", ":"))


def patch_of(
    node: Mapping[str, Any], marks: Marks, *, taint: bool, cordon: bool
) -> dict[str, Any] | None:
    """Return the merge patch that gives the node these marks; None if it has them already.

    A node that somebody else has uncordoned is cordoned again only for an event that did not act on
    it before. The patch names the version of the node that it was made from, so that the API server
    refuses it if somebody else changed the node first.
    """
    before = marks_on(node)
    is_new = any(mark.acts and not before.acts_for(key) for key, mark in marks.events.items())
    metadata = node.get("metadata", {})
    spec = node.get("spec", {})
    is_closed = spec.get("unschedulable") is True
    changed: dict[str, Any] = {}
    if marks.is_cordoned and not is_closed:
        marks = replace(marks, is_cordoned=False, is_reopened=True)
    if not marks.has_acting_event:
        marks = replace(marks, is_reopened=False)
    closes = cordon and marks.has_acting_event
    if closes and not is_closed and (is_new or not marks.is_reopened):
        changed["unschedulable"] = True
        marks = replace(marks, is_cordoned=True, is_reopened=False)
    elif marks.is_cordoned and not closes:
        changed["unschedulable"] = None
        marks = replace(marks, is_cordoned=False)
    taints = spec.get("taints") or []
    wanted = _taints(taints, marks, taint=taint)
    if wanted != taints:
        changed["taints"] = wanted
    text = dump_marks(marks)
    current = (metadata.get("annotations") or {}).get(ANNOTATION)
    if text == current and not changed:
        return None
    patch: dict[str, Any] = {
        "metadata": {
            "resourceVersion": metadata.get("resourceVersion"),
            "annotations": {ANNOTATION: text},
        }
    }
    return {**patch, "spec": changed} if changed else patch


def condition_patch(node: Mapping[str, Any], marks: Marks, *, now: str) -> dict[str, Any] | None:
    """Return the strategic patch of the node's status; None if the condition is already as it
    should be.
    """
    conditions = node.get("status", {}).get("conditions") or []
    before = next((each for each in conditions if each.get("type") == CONDITION), None)
    nearest = marks.nearest
    if nearest is None:
        if before is None:
            return None
        return {"status": {"conditions": [{"$patch": "delete", "type": CONDITION}]}}
    wanted = {
        "type": CONDITION,
        "status": "True",
        "reason": _reason(nearest.event_type),
        "message": message_of(marks),
    }
    if before is not None and all(before.get(key) == value for key, value in wanted.items()):
        return None
    since = now if before is None else before.get("lastTransitionTime", now)
    times = {"lastHeartbeatTime": now, "lastTransitionTime": since}
    return {"status": {"conditions": [{**wanted, **times}]}}


def message_of(marks: Marks) -> str:
    """Return the coming events with their times, for people; one clause for each event."""
    return "; ".join(
        f"{each.event_type} {key}: "
        + (
            "it may start at any time"
            if each.not_before is None
            else f"not before {each.not_before}"
        )
        for key, each in sorted(marks.events.items(), key=lambda item: item[1].not_before or "")
    )


def _taints(taints: Sequence[Any], marks: Marks, *, taint: bool) -> list[Any]:
    others = [each for each in taints if each.get("key") != TAINT]
    acting = [each for each in marks.events.values() if each.acts]
    if not taint or not acting:
        return others
    nearest = min(acting, key=lambda each: (each.not_before or "", each.event_type))
    ours: Mapping[str, Any] = next((each for each in taints if each.get("key") == TAINT), {})
    value = _reason(nearest.event_type)
    # An API server adds fields of its own, such as timeAdded: what fits stays as it is.
    kept = ours if (ours.get("value"), ours.get("effect")) == (value, "NoSchedule") else None
    return [*others, kept or {"key": TAINT, "value": value, "effect": "NoSchedule"}]


def _reason(event_type: str) -> str:
    """Return the type of an event as one word, in a form that a condition and a taint accept."""
    word = "".join(sign for sign in event_type if sign.isascii() and sign.isalnum())[:63]
    return word if word[:1].isalpha() else "ScheduledEvent"
