"""Where settings come from: environment, `.env`, TOML file and secrets directory, as one tree.

It reads the places that the bridge reads, and takes from them only names that begin with
`SEB_CONSOLE_` (in the TOML file: the table `[console]`). No message shows a value.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dotenv import dotenv_values

from console.errors import ConfigurationError

PREFIX: Final = "SEB_CONSOLE_"
CONFIG_VARIABLE: Final = "SEB_CONFIG"
SECRETS_VARIABLE: Final = "SEB_SECRETS_DIR"
SYSTEMD_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
"""Where systemd puts what LoadCredential= names."""
ENV_FILE: Final = Path(".env")
_ENCODING: Final = "utf-8-sig"  # editors on Windows put a byte order mark in front
_DELIMITER: Final = "__"

Tree = dict[str, Any]


def read_tree(overrides: Mapping[str, str], environ: Mapping[str, str]) -> Tree:
    """The settings of every place, the more important one last merged.

    Raises `ConfigurationError` if a place cannot be read, or a name contradicts another.
    """
    dotenv = _dotenv()

    def named(variable: str) -> str | None:
        for source in (overrides, environ, dotenv):
            if variable in source:
                return source[variable]
        return None

    secrets = _secrets(named(SECRETS_VARIABLE) or environ.get(SYSTEMD_VARIABLE))
    tree: Tree = {}
    merge(tree, tree_of(secrets))
    merge(tree, _toml(named(CONFIG_VARIABLE)))
    for source in (dotenv, environ, overrides):
        merge(tree, tree_of(source))
    return tree


def tree_of(variables: Mapping[str, str]) -> Tree:
    """`{"SEB_CONSOLE_LOGIN__MODE": "proxy"}` as `{"login": {"mode": "proxy"}}`."""
    tree: Tree = {}
    # The shortest first: a whole section as JSON stands below its single fields.
    for name in sorted(variables, key=len):
        upper = name.upper()
        if not upper.startswith(PREFIX):
            continue
        value = variables[name]
        if "\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
            raise ConfigurationError(f"{upper}: this is not UTF-8 text")
        *sections, last = upper.removeprefix(PREFIX).lower().split(_DELIMITER)
        place = tree
        for section in sections:
            inner = place.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigurationError(f"{upper}: {PREFIX}{section.upper()} is set already")
            place = inner
        place[last] = value
    return tree


def merge(below: Tree, above: Mapping[str, Any]) -> None:
    """Lay one tree over another, field by field."""
    for name, value in above.items():
        standing = below.get(name)
        if isinstance(standing, dict) and isinstance(value, Mapping):
            merge(standing, value)
        else:
            below[name] = dict(value) if isinstance(value, Mapping) else value


def _dotenv() -> dict[str, str]:
    try:
        if not ENV_FILE.is_file():
            return {}
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
            f"{SECRETS_VARIABLE}: {path} cannot be read ({_why(error)}); let this user read the "
            f"directory and every {PREFIX} file in it"
        ) from None
    return secrets


def _toml(path: str | None) -> Tree:
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
    table = read.get("console", {})
    if not isinstance(table, dict):
        raise ConfigurationError(f"{CONFIG_VARIABLE}: console in {path} is not a table")
    if isinstance(sources := table.get("source"), dict):
        # In the environment a source's name has no case, and both may speak of one source.
        table["source"] = {name.lower(): fields for name, fields in sources.items()}
    return table


def _why(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or "it is not UTF-8 text"
