"""Checks settings, and says in words for people what is wrong with them; never with a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from sinks.shared.errors import ConfigurationError
from sinks.shared.text import escaped

M = TypeVar("M", bound=BaseModel)
FieldPath = tuple[int | str, ...]
"""The names, and the numbers in lists, that lead to a value."""

_QUOTES: Final = ("'", '"')
# pydantic's types of problem, in words for a person who sets a variable.
_WORDS: Final = {
    "missing": "this must be given",
    "tuple_type": 'give a JSON list, such as ["a", "b"]',
    "dict_type": "give a JSON object, or one variable per field",
    "model_type": "give one variable per field",
    "int_parsing": "this is not a whole number",
    "float_parsing": "this is not a number",
    "bool_parsing": "give true or false",
}


def checked(
    model: type[M], fields: Mapping[str, Any], *, prefix: str, shows_values: bool = False
) -> M:
    """Return a model of these fields; `prefix` and a field's name are its variable. Raises
    `ConfigurationError`.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        message = problems(error, prefix, model, shows_values=shows_values)
        for secret in _secret_texts(model, fields):
            message = message.replace(secret, "[secret]")  # a sink's own check may have quoted it
        raise ConfigurationError(message) from None


def problems(
    error: ValidationError, prefix: str, model: type[BaseModel], *, shows_values: bool
) -> str:
    """Return a line for each problem that pydantic found, with the variable's name. A value is
    shown only with `shows_values`, and only if it is no secret and has a quote or a comment in it.
    """
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        path = problem["loc"]
        message = _WORDS.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        field, colon, rest = message.partition(": ")
        inner = _model_at(model, path)
        if colon and inner is not None and field in inner.model_fields:
            message = rest
            path = (*path, field)
        variable = prefix + "__".join(str(part) for part in path).upper()
        if problem["type"] == "extra_forbidden":
            name = str(path[-1])
            beside = _model_at(model, path[:-1])
            known = [] if beside is None else beside.model_fields
            message = "there is no such setting" + suggestion(name, known, variable[: -len(name)])
        elif shows_values and not _may_be_secret(model, path):
            message += _stray_in(problem["input"])
        lines.append(f"{variable.removesuffix('__')}: {message}")
    return "\n".join(lines)


def suggestion(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return '; did you mean …?' for the end of a sentence, or an empty text."""
    from difflib import get_close_matches  # noqa: PLC0415  # only on the way out

    near = get_close_matches(name.upper(), [each.upper() for each in known], n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def check_name(name: str, variable: str, *, of: str) -> None:
    """Raise `ConfigurationError` if the name of a sink or a source has other characters than
    letters, digits, - and _.
    """
    if not name.replace("_", "").replace("-", "").isalnum():
        raise ConfigurationError(f"{variable}: a {of}'s name is letters, digits, - and _")


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


def model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model that is the type of a field, or part of that type."""
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def _model_at(model: type[BaseModel], path: FieldPath) -> type[BaseModel] | None:
    """Return the model whose fields are in this place; None if there is none."""
    for part in path:
        if isinstance(part, int):  # the place in a list of such models
            continue
        field = model.model_fields.get(part)
        inner = None if field is None else model_in(field.annotation)
        if inner is None:
            return None
        model = inner
    return model


def _stray_in(value: object) -> str:
    """Return what `stray` returns, as the end of a message with the value, in which a quote is hard
    to see.
    """
    found = stray(value) if isinstance(value, str) else None
    return f'; it is "{escaped(str(value))}": {found}' if found else ""


def _may_be_secret(model: type[BaseModel], path: FieldPath) -> bool:
    """Check whether the value in this place is a secret, or belongs to no known field."""
    beside = _model_at(model, path[:-1]) if path else None
    field = None if beside is None else beside.model_fields.get(str(path[-1]))
    return field is None or SecretStr.__name__ in repr(field.annotation)


def _secret_texts(model: type[BaseModel], fields: Mapping[str, Any]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        value = fields.get(name)
        if isinstance(value, str) and SecretStr.__name__ in repr(field.annotation):
            yield from [value] if len(value) > 3 else []  # noqa: PLR2004  # would cut words
