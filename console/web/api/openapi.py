"""`/openapi.json`: the description of the API, generated from its operations and models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from console.web.answers import Json
from console.web.api.models import Error
from console.web.api.operations import Operation

_TEXT: Final[Json] = {"type": "string"}
_REFERENCE: Final = "#/components/schemas/{model}"
_PARAMETER: Final = re.compile(r"{(\w+)}")


def document(operations: Iterable[Operation]) -> Json:
    """Return the OpenAPI document of these operations."""
    several = list(operations)
    schemas, definitions = _schemas(several)
    paths: Json = {}
    for each in several:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation_object(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "scheduled-events-bridge console", "version": "1"},
        "paths": paths,
        "components": {"schemas": definitions},
    }


def _schemas(operations: Iterable[Operation]) -> tuple[Mapping[Any, Json], Json]:
    """Return a reference to each model of answers and bodies, and the schemas that these
    refer to.
    """
    answers = {model for each in operations for model in each.answers.values() if model} | {Error}
    bodies = {each.body for each in operations if each.body is not None}
    wanted = [(model, "serialization") for model in sorted(answers, key=_name)]
    wanted += [(model, "validation") for model in sorted(bodies, key=_name)]
    found, whole = models_json_schema(wanted, ref_template=_REFERENCE)  # type: ignore[arg-type]
    return {model: schema for (model, _), schema in found.items()}, whole.get("$defs", {})


def _name(model: type[BaseModel]) -> str:
    return model.__name__


def _operation_object(operation: Operation, schemas: Mapping[Any, Json]) -> Json:
    """Return the description of one operation."""

    def content(model: type[BaseModel] | None, media_type: str) -> Json:
        return {media_type: {"schema": _TEXT if model is None else schemas[model]}}

    responses: Json = {}
    for status, model in operation.answers.items():
        description = operation.summary if model is None else model.__doc__
        responses[status] = {"description": description}
        if status != "204":  # it has no body
            responses[status]["content"] = content(model, operation.media_type)
    refused = {"description": Error.__doc__, "content": content(Error, "application/json")}
    found: Json = {
        "summary": operation.summary,
        "parameters": [*_in_path(operation.path), *_in_query(operation.query)],
        "responses": {**responses, "default": refused},
    }
    if operation.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": content(operation.body, "application/json"),
        }
    return found


def _in_path(path: str) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in _PARAMETER.findall(path)
    ]


def _in_query(query: type[BaseModel]) -> list[Json]:
    """Return the parameters of a query. An optional one has `required: false` instead of a null
    type.
    """
    properties = query.model_json_schema(ref_template=_REFERENCE).get("properties", {})
    found = []
    for name, described in properties.items():
        schema = next(
            (each for each in described.get("anyOf", ()) if each.get("type") != "null"), described
        )
        description = described.get("description", "")
        found.append(
            {
                "name": name,
                "in": "query",
                "required": False,
                "description": description,
                "schema": {key: value for key, value in schema.items() if key != "title"},
            }
        )
    return found
