"""What every part of the settings has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the settings. An unknown name is an error, and no message shows a value."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
