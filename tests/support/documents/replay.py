"""A consumer of records, which refuses every record that an honest stream does not hold."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from support.documents.shapes import tagged

from wire.record import Record
from wire.schema import schema

VALIDATOR = Draft202012Validator(schema(), format_checker=FormatChecker())


@dataclass
class Replay:
    """What the records of one store say, and the ids of all stores before it."""

    pending: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The `data` of each pending event's latest record, by its id without case."""
    revisions: dict[str, int] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)
    """What each record id stands for."""
    told: Counter[str] = field(default_factory=Counter)
    """How many records of each transition there were."""

    def begin_anew(self) -> None:
        """The store is lost: revisions begin again, and the same fact has its id of before."""
        self.pending, self.revisions = {}, {}

    def feed(self, record: Record) -> None:
        """Take the next record of the stream."""
        VALIDATOR.validate(json.loads(record.body))
        data = record.data
        if "transition" not in data:
            return
        kind, event = data["transition"], data["event"]
        key = event["eventId"].casefold()
        before = self.pending.get(key)
        assert record.type == f"seb.event.{kind}.v1"
        assert record.subject == f"scheduledEvents/{event['eventId']}"
        assert data["revision"] == self.revisions.get(key, 0) + 1
        assert kind == (_kind(before, data) if kind != "ended" else "ended")
        assert kind != "ended" or before is not None, "what ends was pending"
        assert ("changed" in data) == (kind == "updated")
        if kind == "updated" and before is not None:
            assert data["changed"]
            assert differing(before["event"], event) <= set(data["changed"])
        # After a store is lost, the same revision may stand for another change, at another time.
        observed = record.time if data["revision"] > 1 else None
        fact = (key, kind, data["revision"], data["fingerprint"], observed)
        assert self.facts.setdefault(record.id, fact) == fact
        assert len(set(self.facts.values())) == len(self.facts)
        self.told[kind] += 1
        self.revisions[key] = data["revision"]
        if kind == "ended":
            del self.pending[key]
        else:
            self.pending[key] = data


def _kind(before: Mapping[str, Any] | None, data: Mapping[str, Any]) -> str:
    """What a record is called that does not end an event."""
    if data["event"]["eventStatus"] == "Started" != (before and before["event"]["eventStatus"]):
        return "started"
    return "scheduled" if before is None else "updated"


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """The names of the fields that differ; neither the id's case nor an order counts."""
    return {name for name in after if name != "eventId" and even(before)[name] != even(after)[name]}


def even(event: Mapping[str, Any]) -> dict[str, object]:
    """The event of a record, such that it equals another one that says the same."""
    made = {
        **event,
        "resources": sorted(event["resources"]),
        "eventId": event["eventId"].casefold(),
    }
    return {name: tagged(value) for name, value in made.items()}
