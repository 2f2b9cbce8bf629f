"""The settings of the Event Hubs sink. They never allow a token to be sent without TLS."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from sinks.base import SinkError, SinkSettings, read_secret
from sinks.kinds.eventhub.address import (
    WEBSOCKET_PORT,
    HubAddress,
    read_connection_string,
    read_namespace,
)
from sinks.shared.proxy import Proxy, proxy_for, read_proxy


class EventHubSettings(SinkSettings):
    """The address of the hub, and exactly one way to authenticate."""

    connection_string: SecretStr | None = Field(
        default=None, description="Connection string with a SAS key or a SAS signature"
    )
    connection_string_file: Path | None = Field(
        default=None,
        description="File that holds the connection string; read again at each connect",
    )
    namespace: str | None = Field(
        default=None,
        description="Host name of the namespace; authenticates with the managed identity",
    )
    name: str | None = Field(
        default=None, description="Name of the hub; wins over EntityPath in a connection string"
    )
    transport: Literal["amqp", "websocket"] = Field(
        default="amqp",
        description="amqp (port 5671), or websocket (port 443, through a proxy if there is one)",
    )
    proxy: SecretStr | None = Field(
        default=None,
        description="HTTP proxy as http://HOST:PORT; the system's unless given. Needs websocket",
    )

    @property
    def way(self) -> str:
        """The name of the setting that says how to authenticate."""
        if self.namespace is not None:
            return "namespace"
        return "connection_string" if self.connection_string_file is None else _FILE

    @model_validator(mode="after")
    def _one_way_that_is_safe(self) -> Self:
        ways = {
            "connection_string": self.connection_string,
            _FILE: self.connection_string_file,
            "namespace": self.namespace,
        }
        if self.proxy is not None:
            if self.transport == "amqp":
                raise ValueError("AMQP cannot pass a proxy; set TRANSPORT=websocket")
            read_proxy(self.proxy.get_secret_value())
        given = [name for name, value in ways.items() if value is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "none of them"
            raise ValueError(f"give exactly one of {', '.join(ways)}; there is {found}")
        try:
            self.address()
        except SinkError as error:
            raise ValueError(str(error)) from None
        return self

    def address(self) -> HubAddress:
        """Return the hub that the settings and the file name at this moment. Raises `SinkError`."""
        try:
            if self.namespace is not None:
                read = read_namespace(self.namespace, self.name)
            else:
                text = read_secret(self.connection_string, self.connection_string_file)
                read = read_connection_string(text or "", self.name)
        except (ValueError, SinkError) as error:
            raise SinkError(f"{self.way}: {error}") from None
        return replace(read, websocket=self.transport == "websocket")

    def proxy_to(self, address: HubAddress) -> Proxy | None:
        """Return the proxy for WebSockets, if there is one. Raises `SinkError` if it is
        not HTTP.
        """
        if not address.websocket or (address.emulator and self.proxy is None):
            return None
        try:
            return proxy_for(address.host, address.port or WEBSOCKET_PORT, self.proxy)
        except ValueError as error:
            raise SinkError(f"HTTPS_PROXY: {error}") from None


_FILE = "connection_string_file"
