"""The JSON Schema of records keeps the fields of earlier versions."""

import json
from pathlib import Path
from typing import Any

from wire.schema import schema

BEFORE = json.loads(
    Path(__file__).with_name("record-0.2.0.schema.json").read_text(encoding="utf-8")
)


def fields(node: Any, place: str = "") -> dict[str, Any]:
    """Return each field of a schema with its type or words, without the rules for types of
    records.
    """
    found: dict[str, Any] = {}
    for name, field in (node.get("properties") or {}).items():
        found[f"{place}.{name}"] = {
            key: value for key, value in field.items() if key in ("type", "enum", "const", "$ref")
        }
        found |= fields(field, f"{place}.{name}")
    for name, definition in (node.get("$defs") or {}).items():
        found |= fields(definition, name)
    return found


def test_no_field_of_0_2_0_is_gone_or_has_another_type() -> None:
    """Since 0.2.0, fields were added, and words were added to lists of words; no field is missing
    or has another type.
    """
    now = fields(schema())
    changed = {
        place: (before, now.get(place))
        for place, before in fields(BEFORE).items()
        if now.get(place) != before and not is_longer(before, now.get(place))
    }
    assert changed == {}


def is_longer(before: dict[str, Any], after: dict[str, Any] | None) -> bool:
    """Check whether a list of words has more words than before, or accepts any word now."""
    if after is None or "enum" not in before:
        return False
    return after == {"type": "string"} or set(before["enum"]) <= set(after.get("enum", []))


def test_a_record_of_0_2_0_has_every_field_that_is_required() -> None:
    """The schema requires no field that records of 0.2.0 lack, because such records are kept in
    files and hubs.
    """
    before, now = required(BEFORE), required(schema())
    assert {
        place: now[place] - names for place, names in before.items() if not now[place] <= names
    } == {}


def required(node: Any, place: str = "") -> dict[str, set[str]]:
    """Return the fields that each object of a schema must have."""
    found = {place: set(node.get("required", ()))} if "properties" in node else {}
    for kind in ("properties", "$defs"):
        for name, inner in (node.get(kind) or {}).items():
            found |= required(inner, f"{place}.{name}")
    return found


def test_each_call_returns_a_new_schema() -> None:
    """A caller that changes the returned schema changes it for no other caller."""
    first = schema()
    first["properties"].clear()
    assert schema()["properties"]
