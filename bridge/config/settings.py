"""The settings and their defaults. Precedence: command line, environment, `.env`, TOML file
(`SEB_CONFIG`), secrets directory. No message shows a value.
"""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from bridge import system
from bridge.config.address import parsed
from bridge.config.approval import ApprovalSettings, CommandsSettings
from bridge.known_api_versions import EVENTS_API_VERSIONS
from sinks.base import JsonList
from sinks.shared.section import Section

PREFIX: Final = "SEB_"
DEFAULT_IMDS_URL: Final = "http://169.254.169.254"


def _base_url(url: str) -> str:
    url = url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half a pair of brackets, or a port that is not a number
        good = False
    if not good or not url.isprintable() or " " in url:
        raise ValueError("this is not an http:// or https:// URL with a host")
    if "@" in parts.netloc or parts.path or parts.query or parts.fragment:
        raise ValueError("the URL must be scheme, host and port only")
    return url


def _listen(address: str) -> str:
    if not address:
        return address
    try:
        ip_address(parsed(address)[0])
    except ValueError:
        example = "such as 127.0.0.1:9469 (or empty, for none)"
        raise ValueError(f"this is not ADDRESS:PORT, {example}") from None
    return address


def _given(path: object) -> object:
    if path == "":
        raise ValueError("this is empty, which would be the current directory; name a directory")
    return path


def _topic_level(text: str) -> str:
    if not text or any(sign in text for sign in "/+#\0") or not text.isprintable():
        raise ValueError("this must be one word without / + # or control characters")
    return text


Url = Annotated[str, AfterValidator(_base_url)]
Positive = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class ImdsSettings(Section):
    """The connection to the metadata service."""

    url: Url = Field(DEFAULT_IMDS_URL, description="Base URL of the metadata service")
    api_version: str = Field(
        EVENTS_API_VERSIONS[-1],
        pattern=r"^\d{4}-\d{2}-\d{2}$",
        description="api-version to ask for; `seb check` names newer ones, and if IMDS refuses "
        "this one, older ones are tried",
    )
    timeout: Positive = Field(5.0, description="Seconds that one request may take in all")
    first_timeout: Positive = Field(
        130.0,
        description=(
            "The same while there was no good answer within 24 hours, in this run or an earlier "
            "one: the request then turns the service on, which can take two minutes"
        ),
    )


class IdentitySettings(Section):
    """Additions to what a record says about the VM."""

    tags: JsonList = Field(
        (), description="JSON list of the names of the VM's tags that records carry"
    )


class NodeSettings(Section):
    """The place of the bridge in a cluster, for `data.node`."""

    cluster: str | None = Field(None, description="Name of the cluster")
    node: str | None = Field(None, description="Name of the node")
    pod: str | None = Field(None, description="Name of the pod")


class HttpSettings(Section):
    """The address of the read-only HTTP server."""

    listen: Annotated[str, AfterValidator(_listen)] = Field(
        "127.0.0.1:9469", description="HOST:PORT of health, metrics and page; empty: no HTTP server"
    )
    hosts: JsonList = Field(
        (),
        description=(
            "JSON list of the names that requests may use beside its address and localhost, such "
            "as the one that Prometheus scrapes"
        ),
    )


class LogSettings(Section):
    """The log: its level and format."""

    format: Literal["auto", "logfmt", "json"] = Field(
        "auto", description="logfmt or json; auto is logfmt on a terminal, json elsewhere"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The lowest level that is logged"
    )

    @field_validator("format", "level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value


class Settings(BaseSettings):
    """All settings of the bridge, without the sinks' own fields."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        env_ignore_empty=False,
    )

    imds: ImdsSettings = ImdsSettings()
    poll_interval: Positive = Field(
        1.0, ge=0.1, description="Seconds from one poll of IMDS to the next"
    )
    state_dir: Annotated[Path, BeforeValidator(_given)] = Field(
        default_factory=system.default_state_dir,
        description="Directory of the store, on a disk that is kept over a redeploy",
    )
    site: Annotated[str, AfterValidator(_topic_level)] = Field(
        "default", description="Names the fleet in MQTT topics"
    )
    scope: Literal["all", "self"] = Field(
        "all",
        description="all: record every event that IMDS shows; self: only events that name this VM",
    )
    identity: IdentitySettings = IdentitySettings()
    node: NodeSettings = NodeSettings()
    heartbeat_interval: float = Field(
        60.0,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
        description="Seconds from one heartbeat record to the next; 0 for none",
    )
    approval: ApprovalSettings = ApprovalSettings()
    commands: CommandsSettings = CommandsSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    sink: dict[str, dict[str, Any]] = Field(
        default_factory=dict, repr=False, description="The sinks by name, each with its fields"
    )
