"""What values.schema.json says of values, without `helm`; and values that it should accept."""

import json
from typing import Any

from jsonschema import Draft7Validator

from bridge.config import reference
from docs.chart_schema import GENERATED, SCHEMA_FILE
from sinks import registry

SCHEMA = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
SINK_VARIABLES = [
    (kind, variable.name.split("__", maxsplit=2)[2].lower(), variable.secret)
    for kind in registry.BUILT_IN
    for variable in reference.sink_variables(kind)
]
BRIDGE_VARIABLES = [
    variable.name.removeprefix("SEB_").lower().replace("__", ".")
    for variable in reference.bridge_variables()
    if variable.name not in reference.OTHER
]
MAY_BE_PLAIN = {"url", "template"}


def problems(values: Any) -> list[str]:
    """Where the schema refuses the values, and what it says; of a choice, what each part says."""
    found = []
    for error in Draft7Validator(SCHEMA).iter_errors(values):
        found += [each.message for each in (error.context or [error])]
    return found


def nested(path: str, value: Any) -> dict[str, Any]:
    """A value at the end of a path of names."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return dict(value)


def sample(definition: str, path: str) -> Any:
    """A value that a place accepts, made from its own schema."""
    node = SCHEMA["definitions"][f"{GENERATED}{definition}"]
    for name in path.split("."):
        node = node["properties"][name]
    return made(node)


def made(node: dict[str, Any]) -> Any:
    """Any value that a node of the schema accepts."""
    if "anyOf" in node:
        return made(node["anyOf"][0])
    if "const" in node:
        return node["const"]
    if "enum" in node:
        return node["enum"][0]
    if node.get("pattern") == r"^\d{4}-\d{2}-\d{2}$":
        return "2020-07-01"
    if node.get("pattern", "").startswith("^/"):
        return "/x"
    kinds = {"string": "x", "boolean": True, "array": [], "object": {}}
    return kinds.get(node["type"], max(1, node.get("minimum", 1)))
