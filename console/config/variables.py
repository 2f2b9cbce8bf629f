"""The config sources as one tree: environment, `.env`, TOML file and secrets directory.

They are the bridge's; only names that begin with `SEB_CONSOLE_` count (in the TOML file: the table
`[console]`). No message shows a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sinks.shared.config_sources import CONFIG_VARIABLE, lower_names, read_config_sources
from sinks.shared.errors import ConfigurationError

PREFIX: Final = "SEB_CONSOLE_"
_DELIMITER: Final = "__"

Tree = dict[str, Any]


def read_tree(overrides: Mapping[str, str], environ: Mapping[str, str]) -> Tree:
    """Return the settings of every source as a tree; a source with a higher precedence overrides
    the others. Raises `ConfigurationError` if a source cannot be read, or a name contradicts
    another.
    """
    config_sources = read_config_sources(overrides, environ, prefix=PREFIX)
    table = config_sources.toml.get("console", {})
    if not isinstance(table, dict):
        path = {**config_sources.dotenv, **environ, **overrides}.get(CONFIG_VARIABLE)
        raise ConfigurationError(f"{CONFIG_VARIABLE}: console in {path} is not a table")
    lower_names(table, "source", "sink")
    tree: Tree = {}
    merge(tree, tree_of(config_sources.secrets))
    merge(tree, table)
    for given in (config_sources.dotenv, environ, overrides):
        merge(tree, tree_of(given))
    return tree


def tree_of(variables: Mapping[str, str]) -> Tree:
    """Return `{"SEB_CONSOLE_LOGIN__MODE": "proxy"}` as `{"login": {"mode": "proxy"}}`."""
    tree: Tree = {}
    # The shortest first: single fields override a whole section as JSON.
    for name in sorted(variables, key=len):
        upper = name.upper()
        if not upper.startswith(PREFIX):
            continue
        *sections, last = upper.removeprefix(PREFIX).lower().split(_DELIMITER)
        branch = tree
        for section in sections:
            inner = branch.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigurationError(f"{upper}: {PREFIX}{section.upper()} is set already")
            branch = inner
        branch[last] = variables[name]
    return tree


def merge(below: Tree, above: Mapping[str, Any]) -> None:
    """Merge the tree `above` into `below`; its values win."""
    for name, value in above.items():
        inner = below.get(name)
        if isinstance(inner, dict) and isinstance(value, Mapping):
            merge(inner, value)
        else:
            below[name] = dict(value) if isinstance(value, Mapping) else value
