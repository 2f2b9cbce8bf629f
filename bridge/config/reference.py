"""All variables, for people: what `seb config` shows, and the tables of the documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from types import UnionType
from typing import Any, Union, get_args, get_origin

from dotenv import dotenv_values
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from bridge.config import variables
from bridge.config.load import Configuration
from bridge.config.settings import PREFIX, Settings
from sinks import registry

MASK = "**********"

OTHER = {
    "SEB_CONFIG": "Path of a TOML file with the same settings, in lower case and in tables",
    "SEB_SECRETS_DIR": (
        "Directory with one file per secret, named like its variable; systemd's credentials "
        "directory unless given"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One environment variable: its default (None if it must be given) and its meaning."""

    name: str
    default: str | None
    description: str
    secret: bool


def bridge_variables() -> Iterator[Variable]:
    """Yield the bridge's own variables, in the order of their definition."""
    for name, field in Settings.model_fields.items():
        if name != "sink":
            yield from _variables(f"{PREFIX}{name.upper()}", field)
    for name in variables.OTHER_NAMES:
        yield Variable(name=name, default="", description=OTHER[name], secret=False)


def sink_variables(kind: str) -> Iterator[Variable]:
    """Yield the variables of a kind of sink, for a sink whose name is the kind."""
    for name, field in registry.load(kind).Settings.model_fields.items():
        if name != "kind":
            yield from _variables(f"{PREFIX}SINK__{kind.upper()}__{name.upper()}", field)


def assignment(name: str, value: str) -> str:
    """Return the line of a `.env` file that gives a variable this value, in quotes if it needs
    them.
    """
    plain = f"{name}={value}"
    if dotenv_values(stream=StringIO(plain), interpolate=False) == {name: value}:
        return plain
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{name}='{quoted}'"


def effective(config: Configuration) -> Iterator[tuple[str, str]]:
    """Yield the current settings, by variable, in the environment's spelling; secrets are
    masked.
    """
    for name, value in _values(PREFIX, config.settings):
        if not name.startswith(f"{PREFIX}SINK"):
            yield name, value
    for spec in config.sinks:
        if spec.settings.kind in registry.INTERNAL:
            continue  # settings of the bridge's own, shown above
        yield from _values(f"{PREFIX}SINK__{spec.name.upper()}__", spec.settings)


def _variables(name: str, field: FieldInfo) -> Iterator[Variable]:
    section = _section(field.annotation)
    if section is not None:
        for inner, each in section.model_fields.items():
            yield from _variables(f"{name}__{inner.upper()}", each)
        return
    yield Variable(
        name=name,
        # A default from a factory depends on the machine, and would change the documentation.
        default=None if field.is_required() else _text(field.default),
        description=field.description or "",
        secret=_mentions(field.annotation, SecretStr),
    )


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a section, even of an optional one; None for a value or a list."""
    choices = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    for each in (annotation, *choices):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def _mentions(annotation: Any, wanted: type) -> bool:
    return annotation is wanted or any(_mentions(each, wanted) for each in get_args(annotation))


def _values(prefix: str, model: BaseModel) -> Iterator[tuple[str, str]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _values(f"{prefix}{name.upper()}__", value)
        elif value is not None:
            yield f"{prefix}{name.upper()}", _text(value)


def _text(value: Any) -> str:
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, (Mapping, list, tuple)):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return str(value)


def _plain(value: Any) -> Any:
    """Return a value that JSON has no type for in another form: an object of a list, or a
    secret.
    """
    if isinstance(value, BaseModel):  # defaults left out: an empty list of words is refused
        return value.model_dump(mode="json", exclude_defaults=True)
    return _text(value)
