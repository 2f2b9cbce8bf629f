"""Reads the settings from all sources and checks them. No message shows a value."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from console.config.settings import ConsoleSettings
from console.config.variables import PREFIX, Tree, read_tree
from sinks.shared.checked_settings import checked
from sinks.shared.errors import ConfigurationError

CLIENT_NAMES: Final = ("url", "token")
"""Names that only the client commands read."""


def load(
    overrides: Mapping[str, str] | None = None, *, environ: Mapping[str, str] | None = None
) -> ConsoleSettings:
    """Read every source, and check every name and value. Raises `ConfigurationError`."""
    tree = read_tree(overrides or {}, os.environ if environ is None else environ)
    for name in CLIENT_NAMES:
        tree.pop(name, None)
    read_groups_file(tree)
    return checked(ConsoleSettings, tree, prefix=PREFIX)


def read_groups_file(tree: Tree) -> None:
    """Add the groups of `SEB_CONSOLE_GROUPS_FILE` to the tree. Raises `ConfigurationError`."""
    name = f"{PREFIX}GROUPS_FILE"
    path = tree.get("groups_file")
    if not isinstance(path, str | Path):
        return
    if "groups" in tree:
        raise ConfigurationError(f"{name}: set GROUPS or GROUPS_FILE, and not both")
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{name}: {path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name}: {path} is not TOML: {error}") from None
    others = sorted(table.keys() - {"groups"})
    if others or "groups" not in table:
        found = f"there is no setting {others[0]!r}" if others else "it has no group"
        raise ConfigurationError(f"{name}: {found} in {path}; each group is a table [[groups]]")
    tree["groups"] = table["groups"]


def client_setting(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return `SEB_CONSOLE_URL` or `SEB_CONSOLE_TOKEN`, from the same sources."""
    value = read_tree({}, os.environ if environ is None else environ).get(name)
    return value if isinstance(value, str) else None


def exposed_secrets(settings: ConsoleSettings) -> list[str]:
    """Return a line for each file with keys or secrets that every account of this machine
    can read.
    """
    named = [settings.key, settings.enroll_key_file, settings.login.client_secret_file]
    for fields in (*settings.source.values(), *settings.sink.values()):
        named += [Path(str(value)) for name, value in fields.items() if name.endswith("_file")]
    return [
        f"{file} can be read by every account of this machine: chmod o-r {file}"
        for file in dict.fromkeys(filter(None, named))
        if _is_exposed(file)
    ]


def _is_exposed(file: Path) -> bool:
    try:
        mode = file.stat().st_mode
    except OSError:  # whoever reads it says so
        return False
    return os.name == "posix" and bool(mode & stat.S_IROTH)
