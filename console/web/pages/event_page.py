"""`/events/<id>`: one event, whom it names, what its reporters say, and what has happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from console.db.snapshot import Snapshot
from console.fleet.moments import seconds_of
from console.web.pages import decision_block, durations, event_rows, past, report, words

_RESOURCES: Final = 200
"""Named VMs on the page; the API has all."""
_OTHERS: Final = 50


def values(item: Mapping[str, Any], names: Mapping[str, str], now: float) -> dict[str, Any]:
    """What the template shows of an event as the API describes it, with its timeline; `names` are
    those of VMs, by vmId.
    """
    reporters = {each["vmId"]: each for each in item["witnesses"]}
    named = [
        {**resource, "says": _says(reporters.get(resource["vmId"]), item)}
        for resource in item["resources"][:_RESOURCES]
    ]
    named_ids = {resource["vmId"] for resource in item["resources"]}
    others = [each for vm_id, each in reporters.items() if vm_id not in named_ids]
    start = seconds_of(item["notBefore"])
    is_news = words.is_news(item)
    may_start = item["state"] == "scheduled" and start is not None and start <= now
    entries = past.entries(item["timeline"], lambda vm_id: names.get(vm_id, vm_id))
    return {
        "event": item,
        "heading": words.heading(item),
        "report": report.report(item, entries[::-1], now),
        "type": words.event_type(item["eventType"]),
        "trying": event_rows.trying(item, now),
        "start": start,
        "first": seconds_of(item["firstSeenAt"]),
        "may_start": may_start and not is_news,
        "is_news": is_news,
        "asked_by": words.ASKED_BY.get(item["eventSource"] or ""),
        "named": named,
        "more_named": max(0, len(item["resources"]) - _RESOURCES),
        "others": others[:_OTHERS],
        "differences": _differences(item["witnesses"]) if item["state"] != "ended" else [],
        "more_others": max(0, len(others) - _OTHERS),
        "timeline": entries,
        "tone": event_rows.group_of(item),
    }


def _says(reporter: Mapping[str, Any] | None, item: Mapping[str, Any]) -> dict[str, Any] | None:
    if reporter is None:
        return None
    facts = {**reporter, "eventType": item["eventType"]}
    facts["durationInSeconds"] = item["durationInSeconds"]
    return {
        **reporter,
        "last": seconds_of(reporter["lastSeenAt"]),
        "measures": durations.durations(facts),
    }


def _differences(reporters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What reporters say otherwise than what is shown, field by field; those that say the same are
    one line.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for reporter in reporters:
        for each in reporter["differences"]:
            field, reported = each["field"], each["reported"]
            line = found.setdefault(
                (field, repr(reported)),
                {
                    "field": field,
                    "label": decision_block.FIELDS[field],
                    "is_time": field == "notBefore",
                    "before": decision_block.field_value(field, each["shown"]),
                    "now": decision_block.field_value(field, reported),
                    "vms": [],
                },
            )
            line["vms"].append((reporter["vmId"], reporter["name"] or reporter["vmId"]))
    fields = list(decision_block.FIELDS)
    return sorted(found.values(), key=lambda line: fields.index(line["field"]))


def names_of(snapshot: Snapshot, item: Mapping[str, Any]) -> dict[str, str]:
    """The names of the VMs in an event's timeline, as far as they are known."""
    vm_ids = {each.get("vmId") for each in item["timeline"]} - {None}
    return {each.vm.vm_id: each.vm.name for each in snapshot.vms.some(sorted(vm_ids))}
