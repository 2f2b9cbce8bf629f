"""Where settings come from: environment, `.env`, TOML file and secrets directory, as they are.

It checks that they can be read, and never what they mean. No message shows a value.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dotenv import dotenv_values
from pydantic_settings import BaseSettings, EnvSettingsSource

from bridge.config.settings import PREFIX
from bridge.errors import ConfigurationError

CONFIG_VARIABLE: Final = "SEB_CONFIG"
SECRETS_VARIABLE: Final = "SEB_SECRETS_DIR"
SYSTEMD_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
"""Where systemd puts what LoadCredential= names."""
ENV_FILE: Final = Path(".env")
_ENCODING: Final = "utf-8-sig"  # editors on Windows put a byte order mark in front


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The variables of every source, in the order of their precedence."""

    overrides: Mapping[str, str]
    environ: Mapping[str, str]
    dotenv: Mapping[str, str]
    toml: Mapping[str, Any]
    secrets: Mapping[str, str]

    @property
    def variables(self) -> tuple[Mapping[str, str], ...]:
        """The sources that use the environment's spelling."""
        return (self.overrides, self.environ, self.dotenv, self.secrets)


class Variables(EnvSettingsSource):
    """Names and values in the environment's spelling, wherever they came from."""

    def __init__(self, settings_cls: type[BaseSettings], variables: Mapping[str, str]) -> None:
        self._variables = {name.lower(): value for name, value in variables.items()}
        super().__init__(settings_cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._variables


def read_sources(overrides: Mapping[str, str], environ: Mapping[str, str]) -> Sources:
    """Read every source. Raises `ConfigurationError` if one cannot be read."""
    dotenv = _dotenv()

    def named(variable: str) -> str | None:
        for source in (overrides, environ, dotenv):
            if variable in source:
                return source[variable]
        return None

    secrets = named(SECRETS_VARIABLE) or environ.get(SYSTEMD_VARIABLE)
    sources = Sources(
        overrides=overrides,
        environ=environ,
        dotenv=dotenv,
        toml=_toml(named(CONFIG_VARIABLE)),
        secrets=_secrets(secrets),
    )
    for source in sources.variables:
        _refuse_other_than_text(source)
    return sources


def _refuse_other_than_text(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        # Python keeps bytes that are not UTF-8 as lone surrogates, which fail much later.
        if name.upper().startswith(PREFIX) and ("\0" in value or not _is_utf8(value)):
            raise ConfigurationError(f"{name.upper()}: this is not UTF-8 text")


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def _dotenv() -> dict[str, str]:
    try:
        if not ENV_FILE.is_file():
            return {}
        # Not expanded: a secret may contain ${, and no other source expands it.
        read = dotenv_values(ENV_FILE, encoding=_ENCODING, interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{ENV_FILE} cannot be read ({_why(error)})") from None
    return {name: value or "" for name, value in read.items()}


def _secrets(directory: str | None) -> dict[str, str]:
    """Files named like variables, one secret each (a mounted secret, systemd's credentials)."""
    if not directory:
        return {}
    secrets, path = {}, Path(directory)
    try:
        for path in sorted(Path(directory).iterdir()):
            if path.name.upper().startswith(PREFIX) and path.is_file():
                secrets[path.name] = path.read_text(encoding=_ENCODING).rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{SECRETS_VARIABLE}: {path} cannot be read ({_why(error)}); this user must be able "
            "to read the directory and every SEB_ file in it"
        ) from None
    return secrets


def _toml(path: str | None) -> dict[str, Any]:
    if not path:
        return {}
    try:
        read = tomllib.loads(Path(path).read_text(encoding=_ENCODING))
    except OSError as error:
        raise ConfigurationError(
            f"{CONFIG_VARIABLE}: {path} cannot be read ({_why(error)})"
        ) from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError; neither shows a value
        raise ConfigurationError(f"{CONFIG_VARIABLE}: {path} is not TOML: {error}") from None
    read.pop("console", None)  # the console's own table
    if isinstance(sinks := read.get("sink"), dict):
        # In the environment a sink's name has no case, and both may speak of one sink.
        read["sink"] = {name.lower(): fields for name, fields in sinks.items()}
    return read


def _why(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or "it is not UTF-8 text"
