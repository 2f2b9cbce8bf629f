"""The differences between an event as a person saw it and as it is; they are shown before it is
approved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from wire.event import FINGERPRINTED, NOT_FINGERPRINTED

_UNCHANGING: Final = ("eventId", "resourceType")
SEEN: Final = tuple(name for name in FINGERPRINTED if name not in _UNCHANGING)
"""Fields of the API's event that the fingerprint covers, without those that never change."""
WORDING: Final = ("impact", *NOT_FINGERPRINTED)
"""Fields of the API's event that the fingerprint does not cover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field with its value before and now; the value of `resources` is a list of names."""

    field: str
    before: Any
    now: Any


def seen_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an approver sees of an event as the API shows it, with id, scope and
    fingerprint.
    """
    seen = {name: item.get(name) for name in ("eventId", "scope", "fingerprint", *SEEN)}
    return seen | {"resources": names_of(item)}


def names_of(item: Mapping[str, Any]) -> list[str]:
    """Return the names of all VMs that an event lists, each once, in the order of the event."""
    return list(dict.fromkeys(str(each["name"]) for each in item.get("resources") or ()))


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Return the fields of two `seen_of` that differ; the order of the names says nothing."""
    return [
        Difference(field=name, before=before.get(name), now=now.get(name))
        for name in SEEN
        if _comparable(before.get(name)) != _comparable(now.get(name))
    ]


def _comparable(value: Any) -> Any:
    is_list = isinstance(value, Iterable) and not isinstance(value, (str, Mapping))
    return sorted(map(str, value)) if is_list else value


def report_differences(shown: Mapping[str, Any], reported: Mapping[str, Any]) -> list[Difference]:
    """Return the fields in which a reporter differs from what is shown; `now` has the reporter's
    value. A field that the fingerprint does not cover counts only if both give it: a state document
    and an older bridge may not.
    """
    found = differences(shown, reported)
    for name in WORDING:
        before = shown.get(name)
        now = reported.get(name)
        if now is not None and before is not None and before != now:
            found.append(Difference(field=name, before=before, now=now))
    return found
