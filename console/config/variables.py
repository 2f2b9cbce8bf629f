"""The sources of settings: environment, `.env`, TOML file and secrets directory, as one tree.

It reads the same sources as the bridge, and takes from them only names that begin with
`SEB_CONSOLE_` (in the TOML file: the table `[console]`). No message shows a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sinks.shared.config_sources import CONFIG_VARIABLE, ConfigSourceError, read_config_sources
from sinks.shared.errors import ConfigurationError

PREFIX: Final = "SEB_CONSOLE_"
_DELIMITER: Final = "__"

Tree = dict[str, Any]


def read_tree(overrides: Mapping[str, str], environ: Mapping[str, str]) -> Tree:
    """The settings of every place, the more important one last merged.

    Raises `ConfigurationError` if a place cannot be read, or a name contradicts another.
    """
    try:
        config_sources = read_config_sources(overrides, environ, prefix=PREFIX)
    except ConfigSourceError as error:
        raise ConfigurationError(str(error)) from None
    table = config_sources.toml.get("console", {})
    if not isinstance(table, dict):
        path = {**config_sources.dotenv, **environ, **overrides}.get(CONFIG_VARIABLE)
        raise ConfigurationError(f"{CONFIG_VARIABLE}: console in {path} is not a table")
    for section in ("source", "sink"):
        if isinstance(named := table.get(section), dict):
            # In the environment a source's name has no case, and both may speak of one source.
            table[section] = {name.lower(): fields for name, fields in named.items()}
    tree: Tree = {}
    merge(tree, tree_of(config_sources.secrets))
    merge(tree, table)
    for given in (config_sources.dotenv, environ, overrides):
        merge(tree, tree_of(given))
    return tree


def tree_of(variables: Mapping[str, str]) -> Tree:
    """`{"SEB_CONSOLE_LOGIN__MODE": "proxy"}` as `{"login": {"mode": "proxy"}}`."""
    tree: Tree = {}
    # The shortest first: a whole section as JSON stands below its single fields.
    for name in sorted(variables, key=len):
        upper = name.upper()
        if not upper.startswith(PREFIX):
            continue
        *sections, last = upper.removeprefix(PREFIX).lower().split(_DELIMITER)
        place = tree
        for section in sections:
            inner = place.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigurationError(f"{upper}: {PREFIX}{section.upper()} is set already")
            place = inner
        place[last] = variables[name]
    return tree


def merge(below: Tree, above: Mapping[str, Any]) -> None:
    """Lay one tree over another, field by field."""
    for name, value in above.items():
        inner = below.get(name)
        if isinstance(inner, dict) and isinstance(value, Mapping):
            merge(inner, value)
        else:
            below[name] = dict(value) if isinstance(value, Mapping) else value
