"""The generated parts of docs/console-reference.md: commands and settings of the console."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from console.cli import COMMANDS
from console.config.settings import ConsoleSettings
from console.config.variables import PREFIX
from console.ingest.settings import EventHubSource, MqttSource

_HIDDEN: Final = (
    "types",
    "affects_this_vm_only",
    "commands",
    "connection_string",
    "kind",
    "password",
)
"""Fields of the sinks that a source does not have, and secrets that are better in a file."""


def command_rows() -> Iterator[tuple[str, click.Command, str]]:
    """Each command of the console: what stands before its name, itself, and what it does."""
    for name, summary in COMMANDS.items():
        command = importlib.import_module(f"console.cli.{name}").command
        if not isinstance(command, click.Group):
            yield "", command, summary
            continue
        if command.invoke_without_command:
            yield "", command, summary
        for inner in command.commands.values():
            yield f"{name} ", inner, inner.get_short_help_str(limit=200)


def variable_rows() -> Iterator[tuple[str, str, str]]:
    """Each variable of the console with its default and its meaning."""
    yield from _rows(ConsoleSettings, PREFIX)


def source_rows() -> Iterator[tuple[str, str, str]]:
    """The fields of the two kinds of source that have some."""
    for kind, model in (("MQTT", MqttSource), ("EVENTHUB", EventHubSource)):
        yield from _rows(model, f"{PREFIX}SOURCE__{kind}__")


def _rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        if name in _HIDDEN or (name in ("source", "sink") and model is ConsoleSettings):
            continue
        inner = next((each for each in _types(field.annotation) if _is_model(each)), None)
        if inner is not None:
            yield from _rows(inner, f"{prefix}{name.upper()}__")
        else:
            yield f"`{prefix}{name.upper()}`", _default(field), field.description or ""


def _types(annotation: Any) -> tuple[Any, ...]:
    """The types that a field itself may have; what stands in a list is not one of its own."""
    if get_origin(annotation) is tuple:
        return ()
    return (annotation, *get_args(annotation))


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _default(field: FieldInfo) -> str:
    value = field.default
    if field.is_required():
        return "**required**"
    if value is None or value is PydanticUndefined or value in ((), {}) or isinstance(value, Path):
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text.removesuffix('.0')}`"
