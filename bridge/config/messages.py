"""Messages about wrong settings, for people; never with a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import SettingsError

from bridge.config import variables
from bridge.config.settings import PREFIX
from sinks.shared.text import escaped

_QUOTES: Final = ("'", '"')
# pydantic's types of problem, in words for a person who sets a variable.
_WORDS: Final = {
    "missing": "this must be given",
    "tuple_type": 'give a JSON list, such as ["a", "b"]',
    "dict_type": "give a JSON object, or one variable per field",
    "int_parsing": "this is not a whole number",
    "float_parsing": "this is not a number",
    "bool_parsing": "give true or false",
}


def model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model that is the type of a field, or part of that type."""
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def not_json(error: SettingsError, sources: Iterable[Mapping[str, str]]) -> str:
    """Return the variable that should be JSON; pydantic-settings names only the field."""
    field = re.search(r'field "(\w+)"', str(error))
    prefix = f"{PREFIX}{field[1]}".upper() if field else PREFIX
    given = [name.upper() for each in sources for name in each if name.upper().startswith(prefix)]
    whole = [name for name in given if name == prefix]
    names_given = " or ".join(sorted(set(whole or given)))
    return f'{names_given}: this is not JSON; a list is ["a", "b"], an object {{"a": "b"}}'


def problems(error: ValidationError, prefix: str, model: type[BaseModel]) -> str:
    """Return the problems that pydantic found, with the names of the environment, without any
    value.
    """
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        place = "__".join(str(part).upper() for part in problem["loc"])
        variable = (prefix + place).removesuffix("__")
        message = _WORDS.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        field, colon, rest = message.partition(": ")
        if colon and not problem["loc"] and field in model.model_fields:
            variable = f"{prefix}{field.upper()}"
            message = rest
        if problem["type"] == "extra_forbidden":
            known = _names_beside(model, problem["loc"])
            message = "there is no such setting" + variables.suggestion(
                str(problem["loc"][-1]), known, variable[: -len(str(problem["loc"][-1]))]
            )
        elif not _is_secret(model, problem["loc"]):
            message += _stray_in(problem["input"])
        lines.append(f"{variable}: {message}")
    return "\n".join(lines)


def stray(value: str) -> str | None:
    """Return in words what looks like a comment or a quote in a value from an environment file;
    None if nothing does.
    """
    if value.lstrip()[:1] in ("[", "{"):
        return None
    if re.search(r"\s#", value):
        return "a comment needs a line of its own"
    if value and (value[0] in _QUOTES) is not (value[-1] in _QUOTES):
        return "a quote is part of the value"
    return None


def _stray_in(value: object) -> str:
    """Return what `stray` returns, as the end of a message with the value, in which a quote is hard
    to see.
    """
    found = stray(value) if isinstance(value, str) else None
    return f'; it is "{escaped(str(value))}": {found}' if found else ""


def _is_secret(model: type[BaseModel], place: tuple[int | str, ...]) -> bool:
    """Check whether the value in this place may be a secret, or is not known not to be one."""
    field = model.model_fields.get(str(place[0])) if place else None
    inner = None if field is None else model_in(field.annotation)
    if inner is not None and len(place) > 1:
        return _is_secret(inner, place[1:])
    return field is None or SecretStr.__name__ in repr(field.annotation)


def _names_beside(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    for part in place[:-1]:
        if isinstance(part, int):  # the place in a list
            continue
        field = model.model_fields.get(str(part))
        inner = None if field is None else model_in(field.annotation)
        if inner is None:
            return []
        model = inner
    return [name for name in model.model_fields if name != "kind"]
