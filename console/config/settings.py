"""The settings of the console. An unknown name is an error; it is never ignored."""

from __future__ import annotations

import os
import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    model_validator,
)

from console.config.groups import GroupSettings, check_names
from console.config.json_text import from_json
from console.config.key_vault import KeyVaultSettings
from console.config.login import LoginSettings
from sinks.http.address import is_loopback
from sinks.shared.section import Section

Role = Literal["viewer", "approver", "admin"]
ROLES: Final[tuple[Role, ...]] = ("viewer", "approver", "admin")
DEFAULT_LISTEN: Final = "127.0.0.1:9470"
_PORTS: Final = 65535
_MIN_KIB: Final = 26
"""Ten minutes of this allow a record of the largest size."""


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`. Raises `ValueError`."""
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


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"this is not a regular expression: {error}") from None
    return text


def default_state_dir() -> Path:
    """Return the directory of the database, unless SEB_CONSOLE_STATE_DIR names one."""
    given = os.environ.get("STATE_DIRECTORY")  # systemd's StateDirectory=
    if given:
        return Path(given.split(":", maxsplit=1)[0])
    import platformdirs  # noqa: PLC0415  # a service has its directory, and does without

    return Path(platformdirs.user_state_dir("scheduled-events-console", appauthor=False))


RoleTable = Annotated[dict[Role, tuple[str, ...]], BeforeValidator(from_json)]
GroupTable = Annotated[
    tuple[GroupSettings, ...], BeforeValidator(from_json), AfterValidator(check_names)
]
SourceTable = Annotated[dict[str, dict[str, Any]], BeforeValidator(from_json)]


class DecisionSettings(Section):
    """The settings of approvals."""

    four_eyes: int = Field(
        0, ge=0, description="From this many named VMs on a second person is needed; 0: never"
    )
    change_pattern: Annotated[str, AfterValidator(_pattern)] | None = Field(
        None,
        description="Regular expression of a change number, such as `CHG[0-9]{7}`: the reason of "
        "an approval must hold one",
    )


class IntakeSettings(Section):
    """How many records and bytes one VM may send to a console in a minute; ten minutes' worth may
    come at once.
    """

    records: int = Field(
        1000, ge=0, description="Records a minute of one VM; beyond that 429 or quarantine. 0: any"
    )
    kib: int = Field(
        4096, ge=0, le=10**9, description="KiB a minute of one VM's records. 0: any number"
    )

    @model_validator(mode="after")
    def _takes_a_record(self) -> Self:
        if 0 < self.kib < _MIN_KIB:
            raise ValueError(f"kib: a record may have 256 KiB; give {_MIN_KIB} at least, or 0")
        return self


class ConsoleLogSettings(Section):
    """The log: its level and format."""

    format: Literal["auto", "logfmt", "json"] = Field(
        "auto", description="logfmt or json; auto is logfmt on a terminal, json elsewhere"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least important lines that are shown"
    )


class ConsoleSettings(Section):
    """All settings of the console, except the fields of sources and sinks."""

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
    sink: SourceTable = Field(
        default_factory=dict,
        repr=False,
        description="Sinks for notices to people, by name, each with its fields",
    )
    pull: bool = Field(default=False, description="Serve the HTTPS command channel")
    enroll_key_file: Path | None = Field(
        None, description="File with at least 32 random bytes in base64; VM secrets are derived"
    )
    key: Path | None = Field(None, description="Private JWK file that signs approvals")
    key_vault: KeyVaultSettings = KeyVaultSettings()
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
    approval: DecisionSettings = DecisionSettings()
    groups: GroupTable = Field(
        (),
        description="JSON list of groups of VMs, of which only so many may be away at once; "
        "`seb console groups check` explains them",
    )
    groups_file: Path | None = Field(
        None, description="TOML file with the groups, a table [[groups]] each, in place of GROUPS"
    )
    intake: IntakeSettings = IntakeSettings()
    log: ConsoleLogSettings = ConsoleLogSettings()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        return split_address(self.listen)

    @property
    def base_url(self) -> str:
        """The URL at which people and VMs reach the console, without a slash at its end."""
        return self.public_url or f"http://{self.listen}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the console."""
        host = self.address[0]
        return host == "localhost" or ip_address(host).is_loopback

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.key is not None and self.key_vault.key is not None:
            raise ValueError("key: set KEY or KEY_VAULT__KEY, and not both")
        return self

    @model_validator(mode="after")
    def _protected(self) -> Self:
        if self.login.mode == "none" and not self.is_loopback:
            raise ValueError(
                "login: without a login the console may only listen on loopback; set "
                "SEB_CONSOLE_LOGIN__MODE to proxy or oidc, or SEB_CONSOLE_LISTEN to 127.0.0.1:9470"
            )
        public = urlsplit(self.public_url or f"http://{self.listen}").hostname or ""
        if self.login.mode == "none" and not is_loopback(public):
            raise ValueError(
                "login: everybody who comes through a proxy would be the local user; set "
                "SEB_CONSOLE_LOGIN__MODE to proxy or oidc before SEB_CONSOLE_PUBLIC_URL leads "
                "others here"
            )
        if self.login.mode == "oidc" and self.public_url is None and not self.is_loopback:
            raise ValueError(
                "public_url: login mode oidc needs the URL at which people reach the console"
            )
        for named in self.roles.values():
            for name in named:
                if not name.startswith(("user:", "group:")):
                    raise ValueError("roles: each entry begins with user: or group:")
        return self
