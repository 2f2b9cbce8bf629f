"""A bridge's parts and all that is seen of them, on a real store, with a clock moved by hand."""

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

from support.documents.documents import VM, FakeClock, ScriptedImds
from support.imds.poller_bench import records_of
from support.page.onlooker import samples

from bridge.api.metrics import Metrics
from bridge.api.web import Web
from bridge.config.load import SinkSpec, sink_spec
from bridge.config.settings import HttpSettings, Settings
from bridge.service.assembly import assemble
from bridge.service.monitoring import Monitoring
from bridge.store.opening import open_store
from sinks.shared.logs import Redactor
from wire.record import Record


class PageReply:
    """An answer, whole."""

    def __init__(self, status: str, headers: list[tuple[str, str]], body: Iterable[bytes]) -> None:
        self.code = int(status.split(maxsplit=1)[0])
        self.headers = dict(headers)
        self.stream = body
        self.body = b"".join(body) if isinstance(body, tuple) else b""

    def json(self) -> Any:
        return json.loads(self.body)


def ask(web: Web, path: str, *, method: str = "GET", **headers: str) -> PageReply:
    """Call a WSGI application as a server would."""
    path, _, query = path.partition("?")
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query}
    environ |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    environ.setdefault("HTTP_HOST", "127.0.0.1:9469")
    setup_testing_defaults(environ)
    environ["wsgi.input"] = io.BytesIO()
    begun: list[Any] = []
    body = web(environ, lambda status, sent: begun.extend((status, sent)))
    return PageReply(begun[0], begun[1], body)


class MonitoredBridge:
    """A bridge that has not polled yet; `poll` makes it look. Its sinks deliver nothing."""

    def __init__(self, directory: Path, sinks: Iterable[SinkSpec] = (), **settings: Any) -> None:
        self.clock = FakeClock()
        self.imds = ScriptedImds()
        self.settings = Settings(state_dir=directory, http=HttpSettings(listen=""), **settings)
        self.sinks = list(sinks) or [sink_spec("file", {"path": str(directory / "out.jsonl")})]
        self.front = Monitoring(self.settings, self.sinks, self.clock)
        self.status = self.front.status
        self.metrics = Metrics(
            self.status, [(each.name, each.settings.kind) for each in self.sinks]
        )
        self.front._metrics = self.metrics
        self.web = Web(self.status, self.metrics, host="127.0.0.1")
        self.store, _ = open_store(directory, self.clock.now())

    def begin(self) -> None:
        """It is known who this VM is."""
        self.parts = assemble(
            self.settings,
            self.sinks,
            self.store,
            vm=VM,
            imds=self.imds,  # type: ignore[arg-type]  # it answers as a client does
            clock=self.clock,
            boot_id="boot-1",
            redact=Redactor(),
            on_poll=self.front.note_poll,
            on_delivered=self.front.note_delivered,
        )
        self.front.begin(self.parts.running)

    def poll(self, said: bytes | Exception, *, after: float = 1.0) -> bool:
        """A poll so many seconds later; whether it went well."""
        self.imds.said = said
        self.clock.advance(after)
        return self.parts.poller.run()

    def records(self) -> list[Record]:
        """Every record in the store."""
        return records_of(self.store)

    def samples(self) -> dict[str, float]:
        """Every sample of the metrics by its name and labels, as the text has them."""
        return samples(self.metrics.text())

    def get(self, path: str, *, method: str = "GET", **headers: str) -> PageReply:
        """What the server answers, without a server."""
        return ask(self.web, path, method=method, **headers)

    def close(self) -> None:
        """Let go of the store."""
        self.front.close()
        self.store.close()
