"""The settings of each kind of source. Fields that a sink has too are inherited from the sink's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Self, TypeVar

from pydantic import Field, model_validator

from console.config.variables import PREFIX
from console.fleet.candidates import PULL
from sinks.base import SinkSettings
from sinks.kinds.eventhub.settings import EventHubSettings
from sinks.kinds.mqtt.settings import MqttSettings
from sinks.shared.checked_settings import check_name, checked, suggestion
from sinks.shared.errors import ConfigurationError
from sinks.shared.section import Section

S = TypeVar("S", bound=SinkSettings)

KINDS: Final = ("eventhub", "mqtt", "webhook")
_OF_SINKS_ONLY: Final = {"types", "affects_this_vm_only", "commands"}


class MqttSource(MqttSettings):
    """A broker that records are read from."""

    share: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description=(
            "Name of a shared subscription, for several consoles on one database: each record "
            "goes to one of them. One that ends in order leaves it to the others, so that one "
            "alone would lose what comes while it restarts; the broker keeps the part of one that "
            "was killed until it is back, for a day"
        ),
    )
    client_id: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{1,128}$",
        description=(
            "The console's own name at the broker, which keeps messages for it while it is away; "
            "made at the first start and kept in STATE_DIR unless given"
        ),
    )

    @model_validator(mode="after")
    def _no_field_of_a_sink(self) -> Self:
        return _refuse(self)


class EventHubSource(EventHubSettings):
    """A hub that records are read from."""

    consumer_group: str = Field(
        default="$Default", min_length=1, max_length=64, description="Consumer group of the console"
    )

    @model_validator(mode="after")
    def _no_field_of_a_sink(self) -> Self:
        return _refuse(self)


class WebhookSource(Section):
    """Signed records over HTTP; it needs no further settings."""

    kind: Literal["webhook"]


SourceSettings = MqttSource | EventHubSource | WebhookSource
_MODELS: Final[dict[str, type[SourceSettings]]] = {
    "mqtt": MqttSource,
    "eventhub": EventHubSource,
    "webhook": WebhookSource,
}


def read_sources(declared: Mapping[str, Mapping[str, Any]]) -> dict[str, SourceSettings]:
    """Return the sources by name, each checked. Raises `ConfigurationError`."""
    found: dict[str, SourceSettings] = {}
    for name, fields in declared.items():
        variable = f"{PREFIX}SOURCE__{name.upper()}"
        check_name(name, variable, of="source")
        if name == PULL:
            raise ConfigurationError(
                f"{variable}: this name is the HTTPS command channel's; choose another"
            )
        kind = str(fields.get("kind", name))
        model = _MODELS.get(kind)
        if model is None:
            raise ConfigurationError(
                f"{variable}: there is no kind of source {kind!r}; the kinds are "
                f"{', '.join(KINDS)}{suggestion(kind, KINDS)}. The kind is the source's name "
                f"unless {variable}__KIND says otherwise"
            )
        settings = checked(model, {"kind": kind, **fields}, prefix=f"{variable}__")
        if kind == "webhook" and any(isinstance(each, WebhookSource) for each in found.values()):
            raise ConfigurationError(f"{variable}: one source of kind webhook is enough")
        found[name] = settings
    return found


def _refuse(settings: S) -> S:
    for name in sorted(settings.model_fields_set & _OF_SINKS_ONLY):
        raise ValueError(f"{name}: a source has no such setting; it is one of the bridge's sinks")
    return settings
