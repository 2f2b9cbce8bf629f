"""From environment, files and command line to checked settings and the classes of the sinks.

Only the kinds of sink that the configuration names are imported. No message shows a value.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dotenv import dotenv_values
from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsError,
)

from bridge import names
from bridge.errors import ConfigurationError
from bridge.settings import PREFIX, Settings
from sinks import registry
from sinks.base import Sink, SinkSettings

CONFIG_VARIABLE: Final = "SEB_CONFIG"
SECRETS_VARIABLE: Final = "SEB_SECRETS_DIR"
ENV_FILE: Final = Path(".env")
# pydantic's types of problem, in the words of somebody who sets a variable.
_WORDS: Final = {
    "missing": "this must be given",
    "tuple_type": 'give a JSON list, such as ["a", "b"]',
    "dict_type": "give a JSON object, or one variable per field",
    "int_parsing": "this is not a whole number",
    "float_parsing": "this is not a number",
    "bool_parsing": "give true or false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """A configured sink: its name, its class and its checked settings."""

    name: str
    sink_class: type[Sink[Any]]
    settings: SinkSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Everything that a run needs to be told."""

    settings: Settings
    sinks: tuple[SinkSpec, ...]


def load(
    overrides: Mapping[str, str] | None = None, *, environ: Mapping[str, str] | None = None
) -> Configuration:
    """Read every source, check every name and value. Raises `ConfigurationError`.

    `overrides` are names and values from the command line, in the environment's spelling.
    """
    environ = os.environ if environ is None else environ
    settings = load_settings(overrides or {}, environ)
    declared = settings.sink or {"stdout": {}}
    return Configuration(
        settings=settings,
        sinks=tuple(sink_spec(name, fields) for name, fields in declared.items()),
    )


def load_settings(overrides: Mapping[str, str], environ: Mapping[str, str]) -> Settings:
    """The settings alone, the sinks' fields not yet checked. Raises `ConfigurationError`."""
    dotenv = _dotenv()
    secrets = _secrets(environ.get(SECRETS_VARIABLE) or environ.get("CREDENTIALS_DIRECTORY"))
    for source in (overrides, environ, dotenv, secrets):
        names.refuse_unknown(source)
    toml = _toml(environ.get(CONFIG_VARIABLE) or dotenv.get(CONFIG_VARIABLE))

    class _Sourced(Settings):
        """The settings with this call's sources; pydantic-settings wants a class for that."""

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (
                _Variables(settings_cls, overrides),
                _Variables(settings_cls, environ),
                _Variables(settings_cls, dotenv),
                InitSettingsSource(settings_cls, init_kwargs=toml),
                _Variables(settings_cls, secrets),
            )

    try:
        return _Sourced()
    except ValidationError as error:
        raise ConfigurationError(_problems(error, PREFIX)) from None
    except SettingsError as error:
        raise ConfigurationError(_not_json(error, (overrides, environ, dotenv, secrets))) from None


class _Variables(EnvSettingsSource):
    """Names and values in the environment's spelling, wherever they came from."""

    def __init__(self, settings_cls: type[BaseSettings], variables: Mapping[str, str]) -> None:
        self._variables = {name.lower(): value for name, value in variables.items()}
        super().__init__(settings_cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._variables


def _dotenv() -> dict[str, str]:
    if not ENV_FILE.is_file():
        return {}
    try:
        read = dotenv_values(ENV_FILE, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{ENV_FILE} cannot be read: {error}") from None
    return {name: value for name, value in read.items() if value is not None}


def _secrets(directory: str | None) -> dict[str, str]:
    """Files named like variables, one secret each (a mounted secret, systemd's credentials)."""
    if not directory:
        return {}
    try:
        files = [path for path in Path(directory).iterdir() if path.is_file()]
        return {
            path.name: path.read_text(encoding="utf-8").rstrip("\r\n")
            for path in files
            if path.name.upper().startswith(PREFIX)
        }
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{SECRETS_VARIABLE}: the secrets in {directory} cannot be read "
            f"({getattr(error, 'strerror', None) or type(error).__name__})"
        ) from None


def _toml(path: str | None) -> dict[str, Any]:
    if not path:
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{CONFIG_VARIABLE}: {path} cannot be read ({error.strerror})"
        ) from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError; neither shows a value
        raise ConfigurationError(f"{CONFIG_VARIABLE}: {path} is not TOML: {error}") from None


def sink_spec(name: str, fields: Mapping[str, Any]) -> SinkSpec:
    """A sink from its name and its fields. Raises `ConfigurationError`."""
    variable = f"{PREFIX}SINK__{name.upper()}"
    if not name.replace("_", "").replace("-", "").isalnum():
        raise ConfigurationError(f"{variable}: a sink's name is letters, digits, - and _")
    fields = {"kind": name, **fields}
    try:
        sink_class = registry.load(str(fields["kind"]))
    except (registry.UnknownKindError, registry.BrokenKindError) as error:
        raise ConfigurationError(
            f"{variable}: {error}. The kind is the sink's name unless {variable}__KIND says "
            "otherwise"
        ) from None
    try:
        settings = sink_class.Settings.model_validate(fields)
    except ValidationError as error:
        known = [field for field in sink_class.Settings.model_fields if field != "kind"]
        raise ConfigurationError(_problems(error, f"{variable}__", known)) from None
    return SinkSpec(name=name, sink_class=sink_class, settings=settings)


def _not_json(error: SettingsError, sources: Iterable[Mapping[str, str]]) -> str:
    """Which variable should have held JSON; pydantic-settings names the field alone."""
    field = re.search(r'field "(\w+)"', str(error))
    prefix = f"{PREFIX}{field[1]}".upper() if field else PREFIX
    given = [name.upper() for each in sources for name in each if name.upper().startswith(prefix)]
    whole = [name for name in given if name == prefix]
    names_given = " or ".join(sorted(set(whole or given)))
    return f'{names_given}: this is not JSON; a list is ["a", "b"], an object {{"a": "b"}}'


def _problems(error: ValidationError, prefix: str, known: list[str] | None = None) -> str:
    """What pydantic found, in the environment's names, without any value."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        place = "__".join(str(part).upper() for part in problem["loc"])
        variable = (prefix + place).removesuffix("__")
        message = _WORDS.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = "there is no such setting" + names.suggestion(
                str(problem["loc"][-1]), known or [], prefix
            )
        lines.append(f"{variable}: {message}")
    return "\n".join(lines)
