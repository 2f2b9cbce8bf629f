"""The part of helm/values.schema.json that follows from the console's own settings."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from pydantic import BaseModel

from console.config.settings import ConsoleSettings
from console.ingest.settings import EventHubSource, MqttSource, WebhookSource

GENERATED: Final = "console-"
BY_REFERENCE: Final = (
    "left out: name a Secret in console.secrets.variables or in console.files instead"
)
OF_THE_CHART: Final = {
    "listen": "left out: set console.port instead",
    "state_dir": "left out: set console.state instead",
    "database": "left out: name a Secret in console.database instead",
}
_KINDS: Final[dict[str, type[BaseModel]]] = {
    "eventhub": EventHubSource,
    "mqtt": MqttSource,
    "webhook": WebhookSource,
}
_OF_SINKS: Final = ("types", "affects_this_vm_only", "commands")
Make = Callable[[type[BaseModel]], dict[str, Any]]


def definitions(make: Make) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every generated definition by its name; `make` gives the schema of a model."""
    settings = make(ConsoleSettings)
    for name, message in OF_THE_CHART.items():
        settings["properties"][name] = {"const": message}
    settings["properties"]["source"] = {
        "type": "object",
        "description": "The sources by name, each with its fields",
        "properties": {
            kind: {
                "if": {"required": ["kind"]},
                "then": {"$ref": f"#/definitions/{GENERATED}source"},
                "else": {"$ref": f"#/definitions/{GENERATED}source-{kind}"},
            }
            for kind in _KINDS
        },
        "additionalProperties": {"$ref": f"#/definitions/{GENERATED}source"},
    }
    settings["description"] = "The console's settings, as in its TOML file"
    yield f"{GENERATED}settings", settings
    yield f"{GENERATED}source", _by_kind()
    for kind, model in _KINDS.items():
        made = make(model)
        for name in _OF_SINKS:
            made["properties"].pop(name, None)
        for name in ("password", "connection_string"):
            if name in made["properties"]:
                made["properties"][name]["const"] = BY_REFERENCE
        made["properties"]["kind"] = {"const": kind}
        yield f"{GENERATED}source-{kind}", {**made, "description": f"A source of kind {kind}"}


def _by_kind() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A source whose name is not its kind",
        "required": ["kind"],
        "properties": {"kind": {"enum": list(_KINDS), "description": "Its kind"}},
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}},
                "then": {"$ref": f"#/definitions/{GENERATED}source-{kind}"},
            }
            for kind in _KINDS
        ],
    }
