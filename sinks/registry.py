"""Finds the class of a kind. Only the kinds that a configuration names are imported."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import Any, Final

from sinks.base import Sink

ENTRY_POINT_GROUP: Final = "scheduled_events_bridge.sinks"

BUILT_IN: Final = {
    "eventhub": "sinks.kinds.eventhub:EventHubSink",
    "file": "sinks.kinds.file:FileSink",
    "kubernetes": "sinks.kinds.kubernetes:KubernetesSink",
    "mqtt": "sinks.kinds.mqtt:MqttSink",
    "program": "sinks.kinds.program:ProgramSink",
    "stdout": "sinks.kinds.stdout:StdoutSink",
    "webhook": "sinks.kinds.webhook:WebhookSink",
}

INTERNAL: Final = {"pull": "sinks.kinds.pull:PullSink"}
"""Kinds that a setting of the bridge adds; they cannot be declared as a sink."""


class UnknownKindError(LookupError):
    """No sink of this kind is installed; the message lists those that are."""


class BrokenKindError(Exception):
    """A sink of this kind is installed, but its code cannot be loaded or is not a Sink."""


def kinds() -> tuple[str, ...]:
    """Return every kind that can be configured here, sorted; nothing is imported."""
    return tuple(sorted({*BUILT_IN, *_entry_points()}))


def load(kind: str) -> type[Sink[Any]]:
    """Return the class of a kind; built-in kinds come first. Raises `UnknownKindError`,
    `BrokenKindError`.
    """
    target = BUILT_IN.get(kind) or INTERNAL.get(kind) or _entry_points().get(kind)
    if target is None:
        known = ", ".join(kinds())
        raise UnknownKindError(f"no sink of kind {kind!r} is installed; there are: {known}")
    named = f"the sink kind {kind!r} ({target})"
    module_name, _, class_name = target.partition(":")
    try:
        loaded = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # other people's code may fail in any way while it is imported
        reason = str(error) or type(error).__name__
        raise BrokenKindError(f"{named} cannot be loaded: {reason}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Sink)):
        raise BrokenKindError(f"{named} is not a subclass of sinks.base.Sink")
    return loaded


def _entry_points() -> dict[str, str]:
    return {point.name: point.value for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
