"""The settings about approval. Without a rule and a key nothing is ever approved.

What the keys of a rule mean for an event is in `bridge/approval/policy.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from sinks.base import JsonList
from sinks.shared.event_match import EventMatch
from sinks.shared.section import Section


def _printable(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError("this must be one line of text, without spaces around it")
    return name


class _Named(Section):
    name: Annotated[str, AfterValidator(_printable)] = Field(
        min_length=1, max_length=100, description="Name of the rule, for receipts"
    )


# Pydantic lists the fields of the last base first: a rule begins with its name.
class Rule(EventMatch, _Named):
    """One rule, as an object of SEB_APPROVAL__RULES or a table [[approval.rules]]."""

    affects_this_vm: bool = Field(default=True, description="Match only events that name this VM")
    max_resources: int = Field(1, ge=0, description="Refuse if the event lists more VMs than this")
    after: JsonList = Field((), description="Sinks that must have acknowledged the event first")
    leader: Literal["first"] | None = Field(
        None, description="first: of the VMs that the event lists, only the first one approves"
    )
    takeover: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="With leader: seconds after which the next VM that the event lists may "
        "approve it, and so on",
    )

    @model_validator(mode="after")
    def _takeover_needs_leader(self) -> Self:
        if self.takeover is not None and self.leader is None:
            raise ValueError('takeover has an effect only with leader = "first"')
        return self


class ApprovalSettings(Section):
    """The ways to approve events."""

    rules: tuple[Rule, ...] = Field(
        (), description="JSON list of the owner's rules; the first that matches an event decides"
    )
    trust: Path | None = Field(
        None, description="JWKS file with the public keys of those who may send commands"
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [rule.name for rule in self.rules]
        if len(set(names)) != len(names):
            raise ValueError("two rules have the same name")
        return self

    def waits_in_vain(self, sinks: Iterable[str]) -> str | None:
        """Return the problem of a rule that waits for a sink which is not configured; None without
        one.
        """
        known = list(sinks)
        for rule in self.rules:
            for name in rule.after:
                if name not in known:
                    there = f"the sinks are: {', '.join(known)}"
                    missing = f"the sink {name}, which is not configured"
                    return f"the rule {rule.name} waits for {missing}; {there}"
        return None


class CommandsSettings(Section):
    """The server that commands are fetched from, for networks that allow only outgoing HTTPS."""

    pull_url: SecretStr | None = Field(None, description="URL of the long poll for commands")
    pull_token: SecretStr | None = Field(None, description="Bearer token for it")
    pull_token_file: Path | None = Field(None, description="File with the bearer token")

    def fields(self) -> dict[str, Any]:
        """Return the given settings as fields of a sink of kind pull, secrets included."""
        given: dict[str, Any] = {}
        if self.pull_url is not None:
            given["url"] = self.pull_url.get_secret_value()
        if self.pull_token is not None:
            given["token"] = self.pull_token.get_secret_value()
        if self.pull_token_file is not None:
            given["token_file"] = str(self.pull_token_file)
        return given
