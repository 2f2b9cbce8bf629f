"""Reads all sources into checked settings and sinks. No message shows a secret."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsError,
)

from bridge.config import variables
from bridge.config.approval import CommandsSettings
from bridge.config.settings import PREFIX, Settings
from sinks import registry
from sinks.base import Sink, SinkSettings
from sinks.settings import PreparingSettings
from sinks.shared.checked_settings import check_name, checked, model_in, problems
from sinks.shared.config_sources import ConfigSources, lower_names, read_config_sources
from sinks.shared.errors import ConfigurationError, unusable_file

_PULL: Final = f"{PREFIX}COMMANDS__PULL_"
_PULL_CHANNEL: Final = "pull"
"""Name and kind of the channel that these settings make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """A configured sink: its name, its class and its checked settings."""

    name: str
    sink_class: type[Sink[Any]]
    settings: SinkSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """All settings of a run."""

    settings: Settings
    sinks: tuple[SinkSpec, ...]


class Variables(EnvSettingsSource):
    """Names and values in the environment's spelling, from any source."""

    def __init__(self, settings_cls: type[BaseSettings], variables: Mapping[str, str]) -> None:
        self._variables = {name.lower(): value for name, value in variables.items()}
        super().__init__(settings_cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._variables


def load(
    overrides: Mapping[str, str] | None = None, *, environ: Mapping[str, str] | None = None
) -> Configuration:
    """Read and check every source; `overrides` are variables. Raises `ConfigurationError`."""
    environ = os.environ if environ is None else environ
    settings = load_settings(overrides or {}, environ)
    declared = settings.sink or {"stdout": {}}
    if problem := settings.approval.waits_in_vain(declared):
        raise ConfigurationError(f"{PREFIX}APPROVAL__RULES: {problem}")
    sinks = [sink_spec(name, fields) for name, fields in declared.items()]
    sinks += _pull_spec(settings.commands, taken=declared)
    preparing_sink(sinks)
    return Configuration(settings=settings, sinks=tuple(sinks))


def load_settings(overrides: Mapping[str, str], environ: Mapping[str, str]) -> Settings:
    """Return only the settings, without a check of the sinks' fields. Raises
    `ConfigurationError`.
    """
    sources = _read(overrides, environ)
    for source in sources.variables:
        variables.refuse_unknown(source)

    class _Sourced(Settings):
        """The settings with this call's sources; pydantic-settings wants a class for that."""

        @classmethod
        def settings_customise_sources(  # type: ignore[override]  # all are called by name
            cls, settings_cls: type[BaseSettings], **_: PydanticBaseSettingsSource
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (
                Variables(settings_cls, sources.overrides),
                Variables(settings_cls, sources.environ),
                Variables(settings_cls, sources.dotenv),
                InitSettingsSource(settings_cls, init_kwargs=dict(sources.toml)),
                Variables(settings_cls, sources.secrets),
            )

    try:
        settings = _Sourced()
    except ValidationError as error:
        message = problems(error, PREFIX, Settings, shows_values=True)
        raise ConfigurationError(message) from None
    except SettingsError as error:
        raise ConfigurationError(_not_json(error, sources.variables)) from None
    _refuse_unreadable(Settings, settings.model_dump(exclude={"sink"}), PREFIX)
    return settings


def _read(overrides: Mapping[str, str], environ: Mapping[str, str]) -> ConfigSources:
    sources = read_config_sources(overrides, environ, prefix=PREFIX)
    sources.toml.pop("console", None)  # the console's own table
    lower_names(sources.toml, "sink")
    return sources


def _not_json(error: SettingsError, sources: Iterable[Mapping[str, str]]) -> str:
    """Return the variable that should be JSON; pydantic-settings names only the field."""
    field = re.search(r'field "(\w+)"', str(error))
    prefix = f"{PREFIX}{field[1]}".upper() if field else PREFIX
    given = [name.upper() for each in sources for name in each if name.upper().startswith(prefix)]
    whole = [name for name in given if name == prefix]
    names_given = " or ".join(sorted(set(whole or given)))
    return f'{names_given}: this is not JSON; a list is ["a", "b"], an object {{"a": "b"}}'


def sink_spec(name: str, fields: Mapping[str, Any]) -> SinkSpec:
    """Return a sink from its name and its fields. Raises `ConfigurationError`."""
    variable = f"{PREFIX}SINK__{name.upper()}"
    check_name(name, variable, of="sink")
    fields = {"kind": name, **fields}
    if fields["kind"] in registry.INTERNAL:
        raise ConfigurationError(
            f"{variable}: a sink of kind {fields['kind']} cannot be declared",
            remedy=f"set {_PULL}URL to fetch commands",
        )
    try:
        sink_class = registry.load(str(fields["kind"]))
    except (registry.UnknownKindError, registry.BrokenKindError) as error:
        raise ConfigurationError(
            f"{variable}: {error}. The kind is the sink's name unless {variable}__KIND says "
            "otherwise"
        ) from None
    return _checked_spec(name, sink_class, fields, prefix=f"{variable}__")


def _pull_spec(commands: CommandsSettings, *, taken: Iterable[str]) -> list[SinkSpec]:
    """Return the pull channel, if it is configured. Raises `ConfigurationError`."""
    fields = commands.fields()
    if "url" not in fields:
        if fields:
            raise ConfigurationError(f"{_PULL}TOKEN has an effect only with {_PULL}URL")
        return []
    clash = next((name for name in taken if name.lower() == _PULL_CHANNEL), None)
    if clash is not None:
        raise ConfigurationError(
            f"{PREFIX}SINK__{clash.upper()}: with {_PULL}URL set, this is the name of the bridge's "
            "own command channel; give yours another name"
        )
    fields = {"kind": _PULL_CHANNEL, **fields}
    return [_checked_spec(_PULL_CHANNEL, registry.load(_PULL_CHANNEL), fields, prefix=_PULL)]


def _checked_spec(
    name: str, sink_class: type[Sink[Any]], fields: Mapping[str, Any], *, prefix: str
) -> SinkSpec:
    """Return a sink from its checked fields; `prefix` and a field's name are its variable."""
    model = sink_class.Settings
    _refuse_unreadable(model, fields, prefix)
    settings = checked(model, fields, prefix=prefix, shows_values=True)
    return SinkSpec(name=name, sink_class=sink_class, settings=settings)


def _refuse_unreadable(model: type[BaseModel], fields: Mapping[str, Any], prefix: str) -> None:
    """Raise `ConfigurationError` if a secret or a certificate file cannot be read now."""
    for name, field in model.model_fields.items():
        value = fields.get(name)
        inner = model_in(field.annotation)
        if inner is not None and isinstance(value, Mapping):
            _refuse_unreadable(inner, value, f"{prefix}{name.upper()}__")
        wanted = name.endswith("_file") or prefix.endswith("__TLS__")
        if not (wanted and isinstance(value, (str, Path)) and "Path" in repr(field.annotation)):
            continue
        try:
            with Path(value).open("rb") as file:
                file.read(1)
        except OSError as error:
            # The message does not repeat the value: people give a secret in the place of its file.
            what = f"{prefix}{name.upper()}: the file that it names cannot be read"
            raise unusable_file(what, error) from None


def preparing_sink(sinks: Iterable[SinkSpec]) -> tuple[str, PreparingSettings] | None:
    """Return name and settings of the sink that prepares this VM. Raises `ConfigurationError` if
    there are two.
    """
    found = [
        (spec.name, spec.settings)
        for spec in sinks
        if isinstance(spec.settings, PreparingSettings) and spec.settings.prepares
    ]
    if len(found) > 1:
        names = ", ".join(f"{PREFIX}SINK__{name.upper()}__PREPARES" for name, _ in found)
        raise ConfigurationError(f"{names}: at most one sink prepares this VM")
    return found[0] if found else None
