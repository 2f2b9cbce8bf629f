"""The settings of the MQTT sink. It opens no file, and never prints a secret."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from sinks.base import SinkSettings
from sinks.shared.proxy import Proxy, proxy_for, read_proxy
from sinks.shared.section import Section

PORT: Final = 1883
TLS_PORT: Final = 8883
HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443

Protocol = Literal["5", "3.1.1"]


class MqttTls(Section):
    """TLS to the broker. The certificate and the name in it are always verified."""

    ca: Path | None = Field(
        default=None, description="PEM file of the CA to trust; the system's CAs unless given"
    )
    cert: Path | None = Field(default=None, description="PEM file of the client certificate")
    key: Path | None = Field(
        default=None, description="PEM file of the client's key; the certificate's unless given"
    )

    @model_validator(mode="after")
    def _key_belongs_to_a_certificate(self) -> Self:
        if self.key is not None and self.cert is None:
            raise ValueError("TLS__KEY needs TLS__CERT, the certificate that it belongs to")
        return self


class MqttSettings(SinkSettings):
    """The broker's address, and how to connect to it."""

    host: str = Field(min_length=1, description="Host name or address of the broker")
    port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port; 1883, or with TLS 8883; with websocket 80 or 443. 8883 and 443 mean TLS",
    )
    username: str | None = Field(default=None, description="User name at the broker")
    password: SecretStr | None = Field(default=None, description="Password at the broker")
    password_file: Path | None = Field(
        default=None, description="File with the password, read again at each connect"
    )
    protocol: Protocol = Field(
        default="5",
        description="MQTT version, 5 or 3.1.1; 3.1.1 can see no refusals and sets no expiry",
    )
    tls: MqttTls | None = Field(default=None, description="Any TLS__ setting turns TLS on")
    commands: bool = Field(
        default=False, description="Listen for signed commands on the VM's command topic"
    )

    transport: Literal["tcp", "websocket"] = Field(
        default="tcp", description="tcp, or websocket: MQTT within WebSockets"
    )
    path: str = Field(
        default="/mqtt", pattern=r"^/[!-~]*$", description="Path of the broker's WebSockets"
    )
    proxy: SecretStr | None = Field(
        default=None,
        description="HTTP proxy as http://HOST:PORT; the system's with websocket and TLS",
    )

    @field_validator("proxy")
    @classmethod
    def _proxy_is_one(cls, proxy: SecretStr | None) -> SecretStr | None:
        if proxy is not None:
            read_proxy(proxy.get_secret_value())
        return proxy

    @field_validator("host")
    @classmethod
    def _host_is_a_name(cls, host: str) -> str:
        if "/" in host or host.count(":") == 1 or not host.isprintable() or " " in host:
            raise ValueError("give the host alone, without mqtt:// or a port; the port is PORT")
        return host

    @model_validator(mode="after")
    def _one_password_of_somebody(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise ValueError("give PASSWORD or PASSWORD_FILE, not both")
        if self.has_password and self.username is None:
            raise ValueError("a password needs USERNAME")
        return self

    @property
    def has_password(self) -> bool:
        """Whether there is a password, wherever it is."""
        return self.password is not None or self.password_file is not None

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.tls is not None or self.port in (TLS_PORT, HTTPS_PORT)

    @property
    def effective_port(self) -> int:
        """The port, with its default filled in."""
        if self.transport == "websocket":
            return self.port or (HTTPS_PORT if self.uses_tls else HTTP_PORT)
        return self.port or (TLS_PORT if self.uses_tls else PORT)

    @property
    def effective_proxy(self) -> Proxy | None:
        """The proxy on the way to the broker. Raises `ValueError` if the system's proxy is not
        valid.
        """
        if self.proxy is None and not (self.transport == "websocket" and self.uses_tls):
            return None
        return proxy_for(self.host, self.effective_port, self.proxy)

    @property
    def is_local(self) -> bool:
        """Whether the broker is on this machine, as far as the host's name shows."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"
