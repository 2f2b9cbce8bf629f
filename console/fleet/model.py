"""The base of the API's answers. A class of an answer stands beside the function that makes it: its
fields are named there and nowhere else, and `/openapi.json` follows from them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from console.fleet.moments import moment
from wire.moment import moment_text

_DATE_TIME: Final = WithJsonSchema({"type": "string", "format": "date-time"})
Moment = Annotated[float, PlainSerializer(moment), _DATE_TIME]
"""Seconds since 1970; RFC 3339 in JSON."""
ReportedMoment = Annotated[datetime, PlainSerializer(moment_text), _DATE_TIME]
"""A time as a record has it; RFC 3339 in JSON, with a fraction only where there is one."""
Count = Annotated[int, Field(ge=0)]


class Model(BaseModel):
    """Base of the answers. Fields are camelCase on the wire, as Azure's are."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", hide_input_in_errors=True
    )
