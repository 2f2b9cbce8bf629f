"""The settings of the login."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)

from console.config.json_text import from_json
from sinks.http.address import is_loopback
from sinks.shared.section import Section

Mode = Literal["none", "proxy", "oidc"]


def _issuer(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        good = bool(host) and parts.port != 0 and not parts.query and not parts.fragment
    except ValueError:
        good = False
    if not good or not url.isprintable() or " " in url or "@" in url:
        raise ValueError("this is not an https:// URL with a host")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ValueError("the provider's URL must begin with https://; http:// only on loopback")
    return url


Addresses = Annotated[tuple[str, ...], BeforeValidator(from_json)]


class LoginSettings(Section):
    """How the console identifies people and programs."""

    mode: Mode = Field(
        "none",
        description="none (only if LISTEN and PUBLIC_URL are loopback), proxy (a header of a named "
        "proxy), or oidc",
    )
    proxies: Addresses = Field(
        (), description="proxy: JSON list of the addresses whose headers are believed"
    )
    user_header: str = Field(
        "X-Forwarded-User", min_length=1, description="proxy: header with the user's name"
    )
    groups_header: str = Field(
        "X-Forwarded-Groups",
        min_length=1,
        description="proxy: header with the user's groups, separated by commas",
    )
    issuer: Annotated[str, AfterValidator(_issuer)] | None = Field(
        None, description="oidc: URL of the provider, as it writes itself in its tokens"
    )
    client_id: str | None = Field(None, description="oidc: client id of the console")
    client_secret_file: Path | None = Field(None, description="oidc: file with the client's secret")
    name_claim: str = Field(
        "preferred_username",
        min_length=1,
        description="oidc: claim with the user's name; `sub` if it is missing",
    )
    groups_claim: str = Field(
        "groups", min_length=1, description="oidc: claim with the user's groups, or roles"
    )
    session_hours: float = Field(
        12, gt=0, le=720, allow_inf_nan=False, description="oidc: hours until a session ends"
    )
    idle_minutes: float = Field(
        60,
        gt=0,
        le=43_200,
        allow_inf_nan=False,
        description="oidc: minutes without a request until a session ends",
    )

    @model_validator(mode="after")
    def _proxies_are_addresses(self) -> Self:
        for address in self.proxies:
            try:
                ip_address(address)
            except ValueError:
                raise ValueError(
                    'proxies: give a JSON list of addresses, such as ["10.0.0.7"]'
                ) from None
        if self.mode == "proxy" and not self.proxies:
            raise ValueError("proxies: mode proxy needs the addresses whose headers are believed")
        if self.mode == "oidc" and not self.issuer:
            raise ValueError("issuer: mode oidc needs the URL of the provider")
        if self.mode == "oidc" and not self.client_id:
            raise ValueError("client_id: mode oidc needs the id under which the console is known")
        return self
