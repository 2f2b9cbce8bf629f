"""The settings about approval. Without a rule and a key nothing is ever approved.

What the keys of a rule mean for an event is in `bridge/approval/policy.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from sinks.base import JsonList


def _printable(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError("this must be one line of text, without spaces around it")
    return name


def _some(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not all(word.strip() for word in words):
        # The owner would mean 'none', and the rule would match any.
        raise ValueError(
            "an empty list or word would match nothing; leave the key out to match any"
        )
    return tuple(word.strip() for word in words)


_Words = Annotated[JsonList, AfterValidator(_some)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Rule(_Section):
    """One rule, as an object of SEB_APPROVAL__RULES or a table [[approval.rules]]."""

    # What is None or empty matches anything. What a rule decides is in `bridge/approval/policy.py`.

    name: Annotated[str, AfterValidator(_printable)] = Field(
        min_length=1, max_length=100, description="Name of the rule, for receipts"
    )
    event_type: _Words = Field((), description="Types to match, such as Freeze; any unless given")
    event_source: _Words = Field(
        (), description="Sources to match, Platform or User; any unless given"
    )
    max_duration: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Match only if the duration is known and at most so many seconds",
    )
    affects_this_vm: bool = Field(default=True, description="Match only events that name this VM")
    max_resources: int = Field(1, ge=0, description="Refuse if the event lists more VMs than this")
    after: JsonList = Field((), description="Sinks that must have acknowledged the event first")
    leader: Literal["first"] | None = Field(
        None, description="first: only the first VM that the event lists acts"
    )
    takeover: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Seconds until the next VM may act instead"
    )

    @model_validator(mode="after")
    def _takeover_needs_leader(self) -> Self:
        if self.takeover is not None and self.leader is None:
            raise ValueError('takeover has an effect only with leader = "first"')
        return self


class ApprovalSettings(_Section):
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
        """The problem of a rule that waits for a sink that is not configured; None without one."""
        known = list(sinks)
        for rule in self.rules:
            for name in rule.after:
                if name not in known:
                    there = f"the sinks are: {', '.join(known)}"
                    missing = f"the sink {name}, which is not configured"
                    return f"the rule {rule.name} waits for {missing}; {there}"
        return None


class CommandsSettings(_Section):
    """The server that commands are fetched from, for networks that allow only outgoing HTTPS."""

    pull_url: SecretStr | None = Field(None, description="URL of the long poll for commands")
    pull_token: SecretStr | None = Field(None, description="Bearer token for it")
    pull_token_file: Path | None = Field(None, description="File with the bearer token")

    def fields(self) -> dict[str, Any]:
        """The given settings as fields of a sink of kind pull, secrets included."""
        given: dict[str, Any] = {}
        if self.pull_url is not None:
            given["url"] = self.pull_url.get_secret_value()
        if self.pull_token is not None:
            given["token"] = self.pull_token.get_secret_value()
        if self.pull_token_file is not None:
            given["token_file"] = str(self.pull_token_file)
        return given
