"""The part of helm/values.schema.json that follows from the bridge's settings."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from bridge.config.settings import Settings
from docs import chart_console_schema
from sinks import registry
from sinks.base import SinkSettings

SCHEMA_FILE: Final = Path(__file__).resolve().parents[1] / "helm" / "values.schema.json"
GENERATED: Final = "bridge-"
"""How the names of generated definitions begin."""

# `const` is the keyword whose failure prints a text of ours, and never the value that was given.
_INSTEAD: Final = "left out: {}"
BY_REFERENCE: Final = _INSTEAD.format("name a Secret in secrets.variables or in files instead")
OF_THE_CHART: Final = {
    "state_dir": _INSTEAD.format("set state instead"),
    "http": _INSTEAD.format("set http instead"),
    "node": _INSTEAD.format("set clusterName instead"),
    "approval.trust": _INSTEAD.format("set approval.trust instead"),
}
"""Settings that follow from other values of the chart."""

# The bridge keeps these secret for what may be in them; most hold nothing of the kind.
_ADDRESSES: Final = ("url", "pull_url")
_TEXTS: Final = ("template",)
# What makes an address a secret: a user, a query, a chat's hook.
_SENSITIVE_ADDRESS: Final = (
    r"[?@]|hooks\.slack|(webhook|outlook)\.office|"
    r"discord(app)?\.com/api/webhooks|/hooks/[A-Za-z0-9]{16,}"
)
# Of kinds that are not built in, only names can tell.
_SENSITIVE_NAME: Final = (
    "(password|passphrase|secret|token|credential|connection_string"
    "|(access|account|api|private|shared|signing)_?key)s?$"
)
_SINK_NAME: Final = "^[a-z0-9]+([_-][a-z0-9]+)*$"


def schema_text() -> str:
    """What the file should hold: its own text with the generated definitions put in."""
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    own = schema.get("definitions", {})
    generated = (GENERATED, chart_console_schema.GENERATED)
    kept = {name: node for name, node in own.items() if not name.startswith(generated)}
    schema["definitions"] = kept | dict(definitions())
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def definitions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every generated definition by its name."""
    settings = _model(Settings)
    for path, message in OF_THE_CHART.items():
        place = settings
        *sections, last = path.split(".")
        for section in sections:
            place = place["properties"][section]
        place["properties"][last] = {"const": message}
    settings["properties"]["sink"] = _sinks()
    settings["description"] = "The bridge's settings, as in its TOML file"
    yield f"{GENERATED}settings", settings
    yield f"{GENERATED}sink", _sink_by_kind()
    for kind in registry.BUILT_IN:
        model = _model(registry.load(kind).Settings)
        yield f"{GENERATED}sink-{kind}", {**model, "description": f"A sink of kind {kind}"}
    yield f"{GENERATED}sink-other", _other_sink()
    yield from chart_console_schema.definitions(_model)


def _sinks() -> dict[str, Any]:
    """The sinks by name; a name that is a kind needs no other word."""
    return {
        "type": "object",
        "description": "The sinks by name, each with its fields",
        "propertyNames": {"pattern": _SINK_NAME},
        "properties": {
            kind: {
                "if": {"required": ["kind"]},
                "then": {"$ref": f"#/definitions/{GENERATED}sink"},
                "else": {"$ref": f"#/definitions/{GENERATED}sink-{kind}"},
            }
            for kind in registry.BUILT_IN
        },
        "additionalProperties": {"$ref": f"#/definitions/{GENERATED}sink"},
    }


def _sink_by_kind() -> dict[str, Any]:
    """The branch of its kind; `required` keeps a sink without one out of every branch."""
    kinds = list(registry.BUILT_IN)
    matches: dict[str, dict[str, Any]] = {kind: {"const": kind} for kind in kinds}
    matches["other"] = {"not": {"enum": kinds}}
    branches = [
        {
            "if": {"properties": {"kind": match}, "required": ["kind"]},
            "then": {"$ref": f"#/definitions/{GENERATED}sink-{kind}"},
        }
        for kind, match in matches.items()
    ]
    return {
        "type": "object",
        "description": "A sink whose name is not its kind",
        "required": ["kind"],
        "allOf": branches,
    }


def _other_sink() -> dict[str, Any]:
    """A kind that the image brings along: its fields are its own, but for those of every sink."""
    return {
        "type": "object",
        "description": "A sink of a kind that is not built in",
        "propertyNames": {"pattern": "^[a-z][a-z0-9_]*$"},
        "properties": _model(SinkSettings)["properties"],
        "patternProperties": {_SENSITIVE_NAME: {"const": BY_REFERENCE}},
    }


def _model(model: type[BaseModel]) -> dict[str, Any]:
    """A model's schema; none of its own fields is required, for a Secret may bring any."""
    whole = model.model_json_schema()
    made = _node(whole, whole.get("$defs", {}), name="")
    return {key: value for key, value in made.items() if key != "required"}


def _node(node: Mapping[str, Any], defs: Mapping[str, Any], *, name: str) -> dict[str, Any]:
    """A node without references, nulls and defaults, and with its secrets refused."""
    if "$ref" in node:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _node({**defs[node["$ref"].rpartition("/")[2]], **rest}, defs, name=name)
    if "anyOf" in node:
        choices = [each for each in node["anyOf"] if each != {"type": "null"}]
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        if len(choices) == 1:
            return _node({**choices[0], **rest}, defs, name=name)
        return {
            **_node(rest, defs, name=name),
            "anyOf": [_node(choice, defs, name=name) for choice in choices],
        }
    if node.get("format") == "password" or _holds_secrets(node):
        return _secret(node, name)
    dropped = ("title", "default", "format", "$defs")
    made = {key: value for key, value in node.items() if key not in dropped}
    if "description" in made:
        made["description"] = re.sub(r"\s+", " ", made["description"])
    if "properties" in made:
        inner = made["properties"].items()
        made["properties"] = {key: _node(value, defs, name=key) for key, value in inner}
    if "items" in made:
        made["items"] = _node(made["items"], defs, name=name)
    return made


def _holds_secrets(node: Mapping[str, Any]) -> bool:
    values = node.get("additionalProperties")
    return isinstance(values, Mapping) and values.get("format") == "password"


def _secret(node: Mapping[str, Any], name: str) -> dict[str, Any]:
    description = node["description"]
    refused = {"const": BY_REFERENCE}
    if name in _TEXTS:
        return {"type": "string", "description": description}
    if name in _ADDRESSES:
        plain = {"type": "string", "not": {"pattern": _SENSITIVE_ADDRESS}}
        return {"anyOf": [plain, refused], "description": description}
    return {**refused, "description": description}
