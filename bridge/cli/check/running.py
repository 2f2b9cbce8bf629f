"""The bridge that runs on this machine, if its settings differ from those of `seb check`: the
service has an environment file, and a shell does not read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from bridge.api import control
from bridge.config.load import Configuration
from bridge.config.settings import Settings
from bridge.errors import SebError
from sinks.base import Check

_REMEDY: Final = (
    "give this check the settings of the bridge: read its environment file first, or name them "
    "with --set"
)


def ask_running(config: Configuration) -> dict[str, Any] | None:
    """The settings that the running bridge reports; None if there are none."""
    try:
        return control.ask(config.settings.state_dir, {"ask": "settings"})
    except (control.ControlError, SebError, OSError):
        return None


def look_at_running(config: Configuration, running: dict[str, Any]) -> Iterator[Check]:
    """The differences that matter to what is asked next."""
    imds, own = running["imds"], config.settings.imds
    if imds["url"] != own.url:
        yield Check(
            level="warn",
            text=f"the running bridge asks IMDS at {imds['url']}, and these settings say {own.url}",
            remedy=_REMEDY,
        )
    names = sorted(spec.name for spec in config.sinks)
    if sorted(running["sinks"]) != names:
        yield Check(
            level="warn",
            text=(
                f"the running bridge has the sinks {', '.join(running['sinks'])}, and these "
                f"settings name {', '.join(names)}"
            ),
            remedy=_REMEDY,
        )


def imds_of(settings: Settings, running: dict[str, Any] | None) -> Settings:
    """The settings, with the IMDS that the running bridge asks."""
    if running is None:
        return settings
    told = {"url": running["imds"]["url"], "api_version": running["imds"]["apiVersion"]}
    return settings.model_copy(update={"imds": settings.imds.model_copy(update=told)})
