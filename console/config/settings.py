"""What the console can be told. A name that is not here is an error, never ignored."""

from __future__ import annotations

import json
import os
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)

Role = Literal["viewer", "approver", "admin"]
Mode = Literal["none", "proxy", "oidc"]
ROLES: Final[tuple[Role, ...]] = ("viewer", "approver", "admin")
DEFAULT_LISTEN: Final = "127.0.0.1:9470"
_PORTS: Final = 65535


def _from_json(value: object) -> object:
    """A variable carries a list or an object as JSON text."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError(
                'this is not JSON; a list is ["a", "b"], an object {"a": "b"}'
            ) from None
    return value


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`. Raises `ValueError`."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and colon and port.isascii() and port.isdecimal() and int(port) <= _PORTS):
        raise ValueError(f"this is not ADDRESS:PORT, such as {DEFAULT_LISTEN}")
    if host != "localhost":
        try:
            ip_address(host)
        except ValueError:
            raise ValueError(f"this is not ADDRESS:PORT, such as {DEFAULT_LISTEN}") from None
    return host, int(port)


def _listen(address: str) -> str:
    split_address(address)
    return address


def _public_url(url: str) -> str:
    url = url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isprintable() or " " in url or "@" in url or "?" in url or "#" in url:
        raise ValueError("this is not an http:// or https:// URL with a host")
    return url


def _database(url: SecretStr) -> SecretStr:
    if not url.get_secret_value().startswith(("postgresql://", "sqlite://")):
        raise ValueError("give postgresql://USER:PASSWORD@HOST/NAME, or leave it out for SQLite")
    return url


def default_state_dir() -> Path:
    """Where the database lives unless SEB_CONSOLE_STATE_DIR says otherwise."""
    given = os.environ.get("STATE_DIRECTORY")  # systemd's StateDirectory=
    if given:
        return Path(given.split(":", maxsplit=1)[0])
    import platformdirs  # noqa: PLC0415  # a service has its directory, and does without

    return Path(platformdirs.user_state_dir("scheduled-events-console", appauthor=False))


Addresses = Annotated[tuple[str, ...], BeforeValidator(_from_json)]
RoleTable = Annotated[dict[Role, tuple[str, ...]], BeforeValidator(_from_json)]
SourceTable = Annotated[dict[str, dict[str, Any]], BeforeValidator(_from_json)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class LoginSettings(_Section):
    """How the console knows who speaks to it."""

    mode: Mode = Field(
        "none",
        description="none (only if LISTEN is loopback), proxy (a header of a named proxy), or oidc",
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
    issuer: str | None = Field(None, description="oidc: URL of the provider")
    client_id: str | None = Field(None, description="oidc: client id of the console")
    client_secret_file: Path | None = Field(None, description="oidc: file with the client's secret")
    groups_claim: str = Field("groups", description="oidc: claim with the user's groups")

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
        return self


class ApprovalSettings(_Section):
    """What a decision needs."""

    four_eyes: int = Field(
        0, ge=0, description="From this many named VMs on a second person is needed; 0: never"
    )


class LogSettings(_Section):
    """What is logged, and how."""

    format: Literal["auto", "logfmt", "json"] = Field(
        "auto", description="logfmt or json; auto is logfmt on a terminal, json elsewhere"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least important lines that are shown"
    )


class Settings(_Section):
    """Everything that the console can be told, but for the sources' own fields."""

    listen: Annotated[str, AfterValidator(_listen)] = Field(
        DEFAULT_LISTEN, description="ADDRESS:PORT of the page and the API"
    )
    state_dir: Path = Field(
        default_factory=default_state_dir, description="Directory of the SQLite database"
    )
    database: Annotated[SecretStr, AfterValidator(_database)] | None = Field(
        None, description="postgresql://… for several consoles; SQLite unless given"
    )
    public_url: Annotated[str, AfterValidator(_public_url)] | None = Field(
        None, description="How people and VMs reach the console; in links, OIDC and enroll"
    )
    source: SourceTable = Field(
        default_factory=dict, repr=False, description="The sources by name, each with its fields"
    )
    pull: bool = Field(default=False, description="Serve the HTTPS command channel")
    enroll_key_file: Path | None = Field(
        None, description="File with at least 32 random bytes in base64; VM secrets are derived"
    )
    key: Path | None = Field(None, description="Private JWK file that signs approvals")
    silent_after: float | None = Field(
        None,
        gt=0,
        le=7 * 86_400,
        allow_inf_nan=False,
        description="Seconds until a VM is silent; three of its heartbeat intervals unless given",
    )
    retention_days: float = Field(
        180, gt=0, allow_inf_nan=False, description="Days that records are kept"
    )
    login: LoginSettings = LoginSettings()
    roles: RoleTable = Field(
        default_factory=dict,
        description='JSON object: role to list of "user:NAME" and "group:NAME"',
    )
    approval: ApprovalSettings = ApprovalSettings()
    log: LogSettings = LogSettings()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        return split_address(self.listen)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the console."""
        host = self.address[0]
        return host == "localhost" or ip_address(host).is_loopback

    @property
    def silent_seconds(self) -> float | None:
        """The silent time of every VM, if one was given."""
        return self.silent_after

    @model_validator(mode="after")
    def _protected(self) -> Self:
        if self.login.mode == "none" and not self.is_loopback:
            raise ValueError(
                "login: without a login the console listens on loopback only; set LOGIN__MODE to "
                "proxy or oidc, or LISTEN to 127.0.0.1:9470"
            )
        for named in self.roles.values():
            for name in named:
                if not name.startswith(("user:", "group:")):
                    raise ValueError("roles: each entry begins with user: or group:")
        return self
