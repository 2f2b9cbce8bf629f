"""The sink's node, and what the sink may do to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from sinks.base import JsonList
from sinks.settings import PreparingSettings
from wire.event import IMPACTS


def _known_impacts(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if word not in IMPACTS:
            raise ValueError(f"there is no impact {word!r}; there are {', '.join(IMPACTS)}")
    return words


class KubernetesSettings(PreparingSettings):
    """The sink's actions on its own node. It always shows events, and does the rest if asked."""

    node: str | None = Field(
        default=None, description="Name of the node; the pod's own (`SEB_NODE__NODE`) unless given"
    )
    affects_this_vm_only: bool = Field(
        default=True,
        description="Leave out events that do not name this VM; they do not concern this node",
    )
    types: JsonList | None = Field(
        default=("seb.event.*",),
        description="JSON list of globs of record types that the sink gets",
    )
    taint: bool = Field(
        default=False, description="Taint the node `NoSchedule` while an event is coming"
    )
    cordon: bool = Field(
        default=False, description="Keep new pods off the node while an event is coming"
    )
    drain: bool = Field(
        default=False,
        description="Evict the node's pods, within their disruption budgets; it cordons, too",
    )
    impacts: Annotated[JsonList, AfterValidator(_known_impacts)] = Field(
        default=("restart", "redeploy", "delete"),
        description="JSON list of the impacts that taint, cordon and drain; others are shown only",
    )
    lead: float = Field(
        default=120.0,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
        description="Seconds before notBefore until which disruption budgets are honoured; with "
        "PREPARES, at which the sink prepares, asked or not, and FORCE_LEAD is for the budgets",
    )
    force_lead: float | None = Field(
        default=None,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
        description="Seconds before notBefore until which disruption budgets are honoured; LEAD "
        "unless given, with PREPARES a quarter of LEAD",
    )
    force: bool = Field(
        default=False,
        description="Then delete the pods that are left; if false, those that may not be evicted "
        "stay, and the record of the event is dead, with the reason",
    )
    kubeconfig: Path | None = Field(
        default=None,
        description="File with the way to the API server; the pod's service account unless given",
    )
    timeout: float = Field(
        default=10.0,
        gt=0,
        le=60,
        allow_inf_nan=False,
        description="Seconds that one request to the API server may take",
    )

    @property
    def budgets_until(self) -> float:
        """Seconds before notBefore until which disruption budgets are respected."""
        if self.force_lead is not None:
            return self.force_lead
        return self.lead / 4 if self.prepares else self.lead
