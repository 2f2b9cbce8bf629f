"""The base of what the API shows. A class of an answer stands beside the function that makes it:
its fields are named there and nowhere else, and `/openapi.json` follows from them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

EventState = Literal["scheduled", "started", "ended"]
Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(ge=0)]


class Model(BaseModel):
    """Fields are camelCase on the wire, as Azure's are."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", hide_input_in_errors=True
    )
