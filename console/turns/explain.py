"""Sentences that explain the groups of the settings to the person who wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from console.config.groups import GroupSettings, Window
from console.turns.groups import Group
from sinks.shared.text import listed

_NAMES_SHOWN: Final = 5


def sentence(settings: GroupSettings) -> str:
    """Return what a group is made of, what it allows, and what it approves by itself."""
    return f"{settings.name}: {_who(settings)}; {_budget(settings)}; {_approval(settings)}."


def members(group: Group, names: Sequence[str]) -> str:
    """Return today's members of a group, by name, and how many of them may be away."""
    noun = "VM" if len(names) == 1 else "VMs"
    shown = listed(names, _NAMES_SHOWN)
    return f"{group.key}: {len(names)} {noun} ({shown}), at most {group.at_most} away"


def _who(settings: GroupSettings) -> str:
    if settings.match:
        fields = [f"{name} is {' or '.join(globs)}" for name, globs in settings.match.items()]
        who = f"VMs whose {' and '.join(fields)}"
    else:
        who = "every VM"
    return f"{who}, one group for each {', '.join(settings.by)}" if settings.by else who


def _budget(settings: GroupSettings) -> str:
    how_many = (
        f"{settings.at_most} of them"
        if isinstance(settings.at_most, str)
        else str(settings.at_most)
    )
    rest = f", and each rests {settings.rest:g} s after it is back" if settings.rest else ""
    return f"at most {how_many} may be away at once{rest}"


def _approval(settings: GroupSettings) -> str:
    if settings.approve is None:
        return "people approve"
    when = " or ".join(_window(window) for window in settings.window)
    what = f"{settings.approve.words} is for the console to approve by itself"
    return f"{what}, {when}" if when else what


def _window(window: Window) -> str:
    days = ", ".join(window.days)
    return f"{days} from {window.begin:%H:%M} to {window.end:%H:%M} {window.zone}"
