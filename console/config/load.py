"""Reads the settings from all sources and checks them. No message shows a value."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from console.config.settings import Settings
from console.config.variables import PREFIX, Tree, read_tree
from sinks.shared.errors import ConfigurationError

M = TypeVar("M", bound=BaseModel)

CLIENT_NAMES: Final = ("url", "token")
"""Names that only the client commands read."""

# pydantic's types of problem, in the words of a person who sets a variable.
_WORDS: Final = {
    "missing": "this must be given",
    "tuple_type": 'give a JSON list, such as ["a", "b"]',
    "dict_type": "give a JSON object, or one variable per field",
    "model_type": "give one variable per field",
    "int_parsing": "this is not a whole number",
    "float_parsing": "this is not a number",
    "bool_parsing": "give true or false",
}


def load(
    overrides: Mapping[str, str] | None = None, *, environ: Mapping[str, str] | None = None
) -> Settings:
    """Read every source, and check every name and value. Raises `ConfigurationError`."""
    tree = read_tree(overrides or {}, os.environ if environ is None else environ)
    for name in CLIENT_NAMES:
        tree.pop(name, None)
    read_groups_file(tree)
    return checked(Settings, tree, prefix=PREFIX)


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


def checked(model: type[M], fields: Mapping[str, Any], *, prefix: str) -> M:
    """Return a model of these fields. Raises `ConfigurationError` with the names of the
    variables.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise ConfigurationError(_problems(error, prefix, model)) from None


def suggestion(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return '; did you mean …?' for the end of a sentence, or an empty text."""
    near = get_close_matches(name.upper(), [each.upper() for each in known], n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def _problems(error: ValidationError, prefix: str, model: type[BaseModel]) -> str:
    lines = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        place = [str(part) for part in problem["loc"]]
        variable = prefix + "__".join(place).upper()
        message = _WORDS.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        field, colon, rest = message.partition(": ")
        inner = _model_at(model, place)
        if colon and inner is not None and field in inner.model_fields:
            variable = f"{prefix}{'__'.join([*place, field]).upper()}"
            message = rest
        if problem["type"] == "extra_forbidden":
            beside = _model_at(model, place[:-1])
            known = [] if beside is None else list(beside.model_fields)
            before = prefix + "".join(f"{part}__" for part in place[:-1]).upper()
            message = "there is no such setting" + suggestion(place[-1], known, before)
        lines.append(f"{variable.removesuffix('__')}: {message}")
    return "\n".join(lines)


def _model_at(model: type[BaseModel], place: list[str]) -> type[BaseModel] | None:
    for part in place:
        if part.isdecimal():  # the place in a list of such models
            continue
        field = model.model_fields.get(part)
        found = None if field is None else _model_in(field.annotation)
        if found is None:
            return None
        model = found
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def exposed_secrets(settings: Settings) -> list[str]:
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
