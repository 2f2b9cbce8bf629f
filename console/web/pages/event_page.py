"""`/events/<id>`: one event, whom it names, what its witnesses say, and what has happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from console.fleet.index import Fleet
from console.web.pages import measures, past, text, words

_RESOURCES: Final = 200
"""Named VMs on the page; the API has all."""
_OTHERS: Final = 50


def values(fleet: Fleet, item: Mapping[str, Any], now: float) -> dict[str, Any]:
    """What the template shows of an event as the API describes it, with its timeline."""
    witnesses = {each["vmId"]: each for each in item["witnesses"]}
    named = [
        {**resource, "says": _says(witnesses.get(resource["vmId"]), item)}
        for resource in item["resources"][:_RESOURCES]
    ]
    named_ids = {resource["vmId"] for resource in item["resources"]}
    others = [each for vm_id, each in witnesses.items() if vm_id not in named_ids]
    start = text.seconds_of(item["notBefore"])
    return {
        "event": item,
        "type": words.event_type(item["eventType"]),
        "start": start,
        "first": text.seconds_of(item["firstSeenAt"]),
        "may_start": item["state"] == "scheduled" and start is not None and start <= now,
        "asked_by": words.ASKED_BY.get(item["eventSource"] or ""),
        "named": named,
        "more_named": max(0, len(item["resources"]) - _RESOURCES),
        "others": others[:_OTHERS],
        "more_others": max(0, len(others) - _OTHERS),
        "timeline": past.entries(item["timeline"], lambda vm_id: name_of(fleet, vm_id)),
        "tone": item["decision"]["state"]
        if item["decision"]["state"] in ("due", "second")
        else item["state"],
    }


def _says(witness: Mapping[str, Any] | None, item: Mapping[str, Any]) -> dict[str, Any] | None:
    if witness is None:
        return None
    facts = {**witness, "eventType": item["eventType"]}
    facts["durationInSeconds"] = item["durationInSeconds"]
    return {
        **witness,
        "last": text.seconds_of(witness["lastSeenAt"]),
        "differs": witness["fingerprint"] != item["fingerprint"],
        "measures": measures.measures(facts),
    }


def name_of(fleet: Fleet, vm_id: str) -> str:
    """A VM's name; its id if nothing has come in from it."""
    vm = fleet.vms.get(vm_id)
    return vm_id if vm is None else vm.name
