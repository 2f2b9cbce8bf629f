"""The settings of one group. An unknown key is an error."""

from __future__ import annotations

import re
from datetime import time
from typing import Annotated, Any, Final, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from sinks.shared.event_match import EventMatch
from sinks.shared.section import Section

FIELDS: Final = ("site", "location", "zone", "scaleSet", "resourceGroup", "name")
"""The attributes that a group can match or separate by, besides `tag:<NAME>`."""
TAG: Final = "tag:"
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
"""The days of a window, in the order of `datetime.weekday`."""
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_PERCENT: Final = re.compile(r"([1-9][0-9]?|100)%")

Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def _known_field(name: str) -> str:
    if name in FIELDS or (name.startswith(TAG) and len(name) > len(TAG)):
        return name
    raise ValueError(f"there is no field {name!r}; the fields are {', '.join(FIELDS)}, tag:<NAME>")


def _minutes(text: object) -> object:
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError("this is not a time of day such as 02:00")
    return time(int(found[1]), int(found[2]))


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r}; one is Europe/Berlin") from None
    return name


FieldName = Annotated[str, AfterValidator(_known_field)]
TimeOfDay = Annotated[time, BeforeValidator(_minutes)]


class Window(Section):
    """Hours of some days of the week; over midnight if `to` is before `from`."""

    days: tuple[Day, ...] = Field(DAYS, min_length=1, description="Days; every day unless given")
    begin: TimeOfDay = Field(alias="from", description="Time of day, such as 22:00")
    end: TimeOfDay = Field(alias="to", description="Time of day, of the next day if it is earlier")
    zone: Annotated[str, AfterValidator(_zone)] = Field(
        "UTC", description="Time zone, such as Europe/Berlin"
    )

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if self.begin == self.end:
            raise ValueError("to: the window ends when it begins; for all day leave it out")
        return self


class GroupSettings(Section):
    """VMs of one service, with a limit of how many may be away at once."""

    name: str = Field(min_length=1, max_length=100, description="Name, unique among the groups")
    match: dict[FieldName, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Field to list of patterns, all fields must match; every VM unless given",
    )
    by: tuple[FieldName, ...] = Field(
        (), description="Fields; VMs that are equal in them are one group each"
    )
    at_most: int | str = Field(
        1, description='VMs that may be away at once: a number, or a share such as "25%"'
    )
    approve: EventMatch | None = Field(
        None, description="Events that the console approves by itself; people approve unless given"
    )
    window: tuple[Window, ...] = Field(
        (), description="When the console approves by itself; always unless given"
    )
    rest: float = Field(
        0,
        ge=0,
        le=7 * 86_400,
        allow_inf_nan=False,
        description="Seconds after the VM is back until its turn ends",
    )

    @field_validator("name")
    @classmethod
    def _name_is_one_word_of_a_key(cls, name: str) -> str:
        if "/" in name or not name.isprintable() or name != name.strip():
            raise ValueError("a name has no slash, no space at its ends and no invisible character")
        return name

    @field_validator("match")
    @classmethod
    def _globs_are_given(cls, match: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for name, globs in match.items():
            if not globs:
                raise ValueError(f"{name}: give at least one pattern, such as ['db-*']")
        return match

    @field_validator("at_most", mode="before")
    @classmethod
    def _at_least_one(cls, value: Any) -> Any:
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        is_share = isinstance(value, str) and _PERCENT.fullmatch(value) is not None
        if not is_count and not is_share:
            raise ValueError('give a whole number from 1 on, or a share such as "25%"')
        return value


def check_names(groups: tuple[GroupSettings, ...]) -> tuple[GroupSettings, ...]:
    """Return the groups if their names differ. Raises `ValueError`."""
    names = [group.name.casefold() for group in groups]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two groups have the name {name!r}")
    return groups
