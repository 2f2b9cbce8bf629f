"""Far ends of remote sinks, each behind a proxy of its own that can spoil what passes."""

import random
import ssl
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from support.amqp.server import SHARED_KEY, EventHubServer
from support.faults.proxy import FaultProxy
from support.mqtt.mosquitto import Mosquitto
from support.sinks.five_sinks import is_event
from support.sinks.http_server import HttpServer
from support.sinks.throwaway_ca import ThrowawayCa

Kind = Literal["webhook", "mqtt", "eventhub"]
AMQPS_PORT = 5671
"""With TLS the SDK of Event Hubs knows no other."""


@dataclass(frozen=True, kw_only=True)
class SpoiledEnd:
    """One sink's far end: how the sink is told of it, and what it has."""

    name: str
    """The sink's name."""
    kind: Kind
    env: Mapping[str, str]
    proxy: FaultProxy
    received: Callable[[], list[bytes]]
    """What arrived, in order, repetitions included."""


class SpoiledEnds:
    """Makes far ends, and takes them down; a context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = ThrowawayCa(directory / "ca")
        self.env = {"SSL_CERT_FILE": str(self.ca.cert)}
        """What every process that talks to them needs: trust in their authority."""
        self.hubs: list[EventHubServer] = []
        self._stack = ExitStack()
        self._servers: dict[bool, HttpServer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def make(self, kind: Kind, name: str, *, tls: bool = False) -> SpoiledEnd:
        """The far end of a sink of this kind and name."""
        makers = {"webhook": self.webhook, "mqtt": self.mqtt, "eventhub": self.eventhub}
        return makers[kind](name, tls=tls)

    def webhook(self, name: str, *, tls: bool = False) -> SpoiledEnd:
        """A path of its own at a server that takes everything."""
        if tls not in self._servers:
            pair = self.ca.server("webhook") if tls else None
            self._servers[tls] = self._stack.enter_context(HttpServer(tls=pair))
        server = self._servers[tls]
        proxy = self._stack.enter_context(FaultProxy(server.port))
        scheme = "https" if tls else "http"
        return SpoiledEnd(
            name=name,
            kind="webhook",
            env=variables(
                name, {"kind": "webhook", "url": f"{scheme}://{proxy.host}:{proxy.port}/{name}"}
            ),
            proxy=proxy,
            received=lambda: [each.body for each in server.requests() if each.target == f"/{name}"],
        )

    def mqtt(self, name: str, *, tls: bool = False) -> SpoiledEnd:
        """A broker of its own: two sinks of one VM would write the same topics."""
        pair = self.ca.server(f"broker-{name}") if tls else None
        broker = self._stack.enter_context(Mosquitto(self.directory / name, tls=pair))
        trust = ssl.create_default_context(cafile=self.ca.cert) if tls else None
        subscriber = self._stack.enter_context(broker.subscriber("seb/#", tls=trust))
        proxy = self._stack.enter_context(FaultProxy(broker.port))
        where = {"kind": "mqtt", "host": proxy.host, "port": str(proxy.port)}
        if tls:
            where["tls__ca"] = str(self.ca.cert)
        return SpoiledEnd(
            name=name,
            kind="mqtt",
            env=variables(name, where),
            proxy=proxy,
            received=lambda: [
                each.payload for each in subscriber.messages() if is_event(each.topic)
            ],
        )

    def eventhub(self, name: str, *, tls: bool = False) -> SpoiledEnd:
        """A namespace of its own, so that one may misbehave alone."""
        host, port = (a_loopback_address(), AMQPS_PORT) if tls else ("127.0.0.1", 0)
        context = self.ca.server(f"hub-{name}", addresses=[host]).context if tls else None
        server = self._stack.enter_context(EventHubServer(tls=context))
        self.hubs.append(server)
        proxy = self._stack.enter_context(FaultProxy(server.port, host=host, port=port))
        told = server.connection_string(name)
        if tls:
            told = (
                f"Endpoint=sb://{host}/;SharedAccessKeyName=send;"
                f"SharedAccessKey={SHARED_KEY};EntityPath={name}"
            )
        told = told.replace(f":{server.port}/", f":{proxy.port}/")
        return SpoiledEnd(
            name=name,
            kind="eventhub",
            env=variables(name, {"kind": "eventhub", "connection_string": told}),
            proxy=proxy,
            received=lambda: [message.body for message in server.messages(name)],
        )


def variables(sink: str, fields: Mapping[str, str]) -> dict[str, str]:
    """The variables that declare a sink."""
    return {f"SEB_SINK__{sink.upper()}__{field.upper()}": told for field, told in fields.items()}


def a_loopback_address() -> str:
    """One of the 16 million that Linux has, so that a fixed port on it is free."""
    return f"127.{random.randint(1, 254)}.{random.randint(0, 255)}.{random.randint(1, 254)}"
