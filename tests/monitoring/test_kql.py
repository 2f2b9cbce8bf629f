"""The queries of docs/kql.md name fields, types and words that the record's schema has."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from support.monitoring import promtool

from wire.schema import schema

TEXT = (promtool.REPOSITORY / "docs" / "kql.md").read_text(encoding="utf-8")
BLOCKS = {
    TEXT[: found.start()].count("\n") + 2: found[1]
    for found in re.finditer(r"^```kusto\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
}
"""Each block by the line that it begins at."""
SCHEMA = schema()
TYPES: tuple[str, ...] = tuple(SCHEMA["properties"]["type"]["enum"])
CONSTANTS = {name for name, field in SCHEMA["properties"].items() if "const" in field}


def block(begin: str) -> str:
    """The one block that begins so."""
    (found,) = (each for each in BLOCKS.values() if each.startswith(begin))
    return found


def references(node: Any) -> Iterator[str]:
    """The names of the definitions that a part of the schema refers to."""
    if isinstance(node, Mapping):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for each in node.values():
            yield from references(each)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def data_of(record_type: str) -> dict[str, Any]:
    """What the schema says of `data` in records of a type."""
    (then,) = (
        rule["then"]
        for rule in SCHEMA["allOf"]
        if rule["if"]["properties"]["type"]["const"] == record_type
    )
    (name,) = references(then)
    found: dict[str, Any] = SCHEMA["$defs"][name]
    return found


def field_at(path: str, record_type: str) -> dict[str, Any] | None:
    """The field at a path in records of a type; None where there is none."""
    at = data_of(record_type)
    for name in path.split("."):
        fields = at.get("properties")
        if fields is None:
            return at if at.get("type") == "object" else None  # an object of anything, such as raw
        if name not in fields:
            return None
        at = fields[name]
        if "$ref" in at:
            at = SCHEMA["$defs"][at["$ref"].rpartition("/")[2]]
    return at


def types_in(text: str) -> list[str]:
    """The types that a query chooses, or may come upon."""
    events = [each for each in TYPES if each.startswith("seb.event.")]
    named = [each for each in TYPES if f'"{each}"' in text]
    return named + (events if "SebEvents" in text else []) or list(TYPES)


def test_the_page_has_queries() -> None:
    """The reader of blocks finds those that there are."""
    assert len(BLOCKS) == TEXT.count("```kusto") > 15


@pytest.mark.parametrize("line", BLOCKS)
def test_every_path_type_and_word_exists(line: int) -> None:
    """Each path into `data` is a field of the types of records that the query is about; each type
    is one that records have, or how some begin; a field with a list of words has the word.
    """
    text = BLOCKS[line]
    missing = [
        path
        for statement in text.split(";\n")
        for path in re.findall(r"\bdata\.([A-Za-z_][\w.]*)", statement)
        if not any(field_at(path, each) for each in types_in(statement))
    ]
    named = re.findall(r'"(seb\.[\w.-]+)"', text)
    unknown = [name for name in named if not any(each.startswith(name) for each in TYPES)]
    compared = re.findall(r'tostring\(data\.([\w.]+)\) [=!]= "(\w+)"', text)
    wrong = [
        (path, word)
        for path, word in compared
        for record_type in types_in(text)
        if (found := field_at(path, record_type)) and word not in found.get("enum", [word])
    ]

    assert (missing, unknown, wrong) == ([], [], [])


def test_a_wrong_path_would_be_found() -> None:
    """The checks above can fail."""
    assert field_at("event.eventName", "seb.event.ended.v1") is None
    assert field_at("event.eventId", "seb.bridge.gap.v1") is None
    assert field_at("raw.EventId", "seb.event.ended.v1") is not None
    assert field_at("heartbeat.lastPollTime", "seb.bridge.heartbeat.v1") is not None


def test_the_mapping_fills_every_column() -> None:
    """The table has a column per attribute that varies, and the mapping fills each from its own."""
    table = block(".create table SebFeed (")
    columns = re.findall(r"(\w+): \w+", table)
    lines = re.findall(r"^'(.*)'$", block(".create table SebFeed ingestion"), re.MULTILINE)
    mapping = {each["column"]: each["Properties"]["Path"] for each in json.loads("".join(lines))}
    renamed = {"time": "observed"}
    varying = [name for name in SCHEMA["properties"] if name not in CONSTANTS]

    assert sorted(renamed.get(name, name) for name in varying) == sorted(columns)
    assert {renamed.get(name, name): f"$.{name}" for name in varying} == mapping


def test_both_kinds_of_table_give_the_same_columns() -> None:
    """The function for Log Analytics gives what the view gives, from what its rule filled."""
    columns = re.findall(r"(\w+): \w+", block(".create table SebFeed ("))
    rule, function = block("source\n"), block("SebFeed_CL\n")
    given = re.findall(r"^    (\w+) = ", function, re.MULTILINE)
    filled = set(re.findall(r"^    (\w+)[ ,]", rule, re.MULTILINE))
    read = set(re.findall(r"= (?:tolong\()?(\w+)", function))
    attributes = re.findall(r'record(?:\.|\[")(\w+)', rule)

    assert sorted([*columns, "sequenceNumber"]) == sorted(given)
    assert read | {"TimeGenerated"} == filled
    assert filled - {"TimeGenerated"} == set(re.findall(r"`((?:Record|Partition)\w+)`", TEXT))
    assert sorted(set(SCHEMA["properties"]) - CONSTANTS) == sorted(set(attributes))
