"""The sources of settings, for bridge and console: command line, environment and files.

No message shows a value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dotenv import dotenv_values

from sinks.shared.errors import ConfigurationError, unusable_file

CONFIG_VARIABLE: Final = "SEB_CONFIG"
SECRETS_VARIABLE: Final = "SEB_SECRETS_DIR"
SYSTEMD_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
"""The directory in which systemd puts the files of LoadCredential=."""
ENV_FILE: Final = Path(".env")
_ENCODING: Final = "utf-8-sig"  # editors on Windows put a byte order mark in front


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSources:
    """The values of each source, in the order of precedence."""

    overrides: Mapping[str, str]
    environ: Mapping[str, str]
    dotenv: Mapping[str, str]
    toml: dict[str, Any]
    secrets: Mapping[str, str]

    @property
    def variables(self) -> tuple[Mapping[str, str], ...]:
        """The sources that use the spelling of environment variables."""
        return (self.overrides, self.environ, self.dotenv, self.secrets)


def read_config_sources(
    overrides: Mapping[str, str], environ: Mapping[str, str], *, prefix: str
) -> ConfigSources:
    """Read every source for names with a prefix. Raises `ConfigurationError`."""
    dotenv = _dotenv()
    named = {**dotenv, **environ, **overrides}
    directory = named.get(SECRETS_VARIABLE) or environ.get(SYSTEMD_VARIABLE)
    sources = ConfigSources(
        overrides=overrides,
        environ=environ,
        dotenv=dotenv,
        toml=_toml(named.get(CONFIG_VARIABLE)),
        secrets=_secrets(directory, prefix),
    )
    for source in sources.variables:
        for name, value in source.items():
            # Python keeps bytes that are not UTF-8 as lone surrogates, which fail much later.
            if name.upper().startswith(prefix) and re.search("[\0\ud800-\udfff]", value):
                raise ConfigurationError(f"{name.upper()}: this is not UTF-8 text")
    return sources


def lower_names(table: dict[str, Any], *sections: str) -> None:
    """Write the names of the sinks or sources of a TOML table in lower case: the environment knows
    no case, and both may name the same one.
    """
    for section in sections:
        if isinstance(named := table.get(section), dict):
            table[section] = {name.lower(): fields for name, fields in named.items()}


def _dotenv() -> dict[str, str]:
    try:
        if not ENV_FILE.is_file():
            return {}
        # Not expanded: a secret may contain ${, and no other source expands it.
        read = dotenv_values(ENV_FILE, encoding=_ENCODING, interpolate=False)
    except OSError as error:
        raise unusable_file(f"{ENV_FILE} cannot be read", error) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{ENV_FILE} cannot be read (it is not UTF-8 text)") from None
    return {name: value or "" for name, value in read.items()}


def _secrets(directory: str | None, prefix: str) -> dict[str, str]:
    """Read files named like variables, one secret each (a mounted secret, or systemd's
    credentials).
    """
    if not directory:
        return {}
    secrets = {}
    path = Path(directory)
    try:
        for path in sorted(Path(directory).iterdir()):
            if path.name.upper().startswith(prefix) and path.is_file():
                secrets[path.name] = path.read_text(encoding=_ENCODING).rstrip("\r\n")
    except OSError as error:
        remedy = f"this user must be able to read the directory and every {prefix} file in it"
        what = f"{SECRETS_VARIABLE}: {path} cannot be read"
        raise unusable_file(what, error, remedy) from None
    except ValueError:
        raise ConfigurationError(
            f"{SECRETS_VARIABLE}: {path} cannot be read (it is not UTF-8 text)"
        ) from None
    return secrets


def _toml(path: str | None) -> dict[str, Any]:
    if not path:
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding=_ENCODING))
    except OSError as error:
        raise unusable_file(f"{CONFIG_VARIABLE}: {path} cannot be read", error) from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError; neither shows a value
        raise ConfigurationError(f"{CONFIG_VARIABLE}: {path} is not TOML: {error}") from None
