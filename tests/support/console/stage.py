"""A real console in this process, whose clock a test sets, and VMs that speak to it."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import requests
import uvicorn
from sqlalchemy import delete
from support.console.empty_database import put_database
from support.console.records import FakeVm
from support.eventually import eventually
from support.ports import free_port

from console.config.load import load
from console.db.schema import tables
from console.db.sources.listening import ListeningInterval, write_listening
from console.ingest.source_batch import SourceBatch
from console.records.incoming import IncomingMessage
from console.records.parse import parse_record, parse_status
from console.service.console import Console
from console.service.uvicorn_protocol import ConnectionLimits, protocol
from console.web.app import application
from wire.moment import rfc3339
from wire.record import Record

START = datetime(2026, 3, 2, 2, 14, 28, tzinfo=UTC)
"""The time on the console's clock, until a test moves it."""


class ConsoleStage:
    """A console with a webhook source called web; records are put into its writer."""

    def __init__(self, directory: Path, **settings: str) -> None:
        key = directory / "enroll.key"
        key.write_text(base64.b64encode(os.urandom(32)).decode())
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._now = START
        self._listened_since = START - timedelta(days=1)
        environ = {
            "SEB_CONSOLE_STATE_DIR": str(directory),
            "SEB_CONSOLE_LISTEN": f"127.0.0.1:{port}",
            "SEB_CONSOLE_SOURCE__WEB__KIND": "webhook",
            "SEB_CONSOLE_ENROLL_KEY_FILE": str(key),
            "SEB_CONSOLE_RETENTION_DAYS": "36500",  # the test's time is long past
            **{f"SEB_CONSOLE_{name}": value for name, value in settings.items()},
        }
        self._begun: float | None = None
        self.console = Console(load(environ=environ), clock=self._seconds)
        self.state = self.console.state
        self.http = requests.Session()
        self.http.trust_env = False
        self._listener = socket.create_server(("127.0.0.1", port))
        self._server = uvicorn.Server(
            uvicorn.Config(
                application(self.state, self.console.stream),
                http=protocol(ConnectionLimits()),
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def now(self) -> datetime:
        """The time on the console's clock."""
        return self._now

    @now.setter
    def now(self, moment: datetime) -> None:
        """Move the clock; the console has listened all the while."""
        self._now = moment
        self._listen()

    def let_time_pass(self) -> None:
        """From here on the console's clock runs."""
        self._begun = time.monotonic()

    def _seconds(self) -> float:
        passed = 0.0 if self._begun is None else time.monotonic() - self._begun
        return self._now.timestamp() + passed

    def begin_to_listen(self, seconds_ago: float) -> None:
        """Let it be so long since anybody has listened, and not a day."""
        self._listened_since = self._now - timedelta(seconds=seconds_ago)
        self._listen()

    def _listen(self) -> None:
        """Write that the console has listened to each source until now."""
        now = self._now.timestamp()
        with self.console.database.writing.begin() as connection:
            connection.execute(delete(tables.listening))
            listened = [
                ListeningInterval(
                    source=each.name,
                    since=self._listened_since.timestamp(),
                    until=now if each.is_connected else now - 60,
                )
                for each in self.state.sources.values()
            ]
            write_listening(connection, "stage", listened, seen_at=now)

    def _run(self) -> None:
        asyncio.run(self.console._serve(self._server, self._listener))

    def __enter__(self) -> Self:
        if self.console.database.is_sqlite:
            put_database(Path(str(self.console.database.url.database)).parent)
        self.console.database.open()
        self._thread.start()
        eventually(lambda: self._server.started and self.state.is_ready(), what="the console")
        for source in self.state.sources.values():
            source.note_connected(self._now.timestamp())
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it; may be called twice."""
        self._server.should_exit = True
        self._thread.join(20)
        self.http.close()
        for part in (self.console.decisions, self.console.writer, self.console.feed):
            part.stop()
        self.console.database.close()

    def moment(self, seconds: float) -> str:
        """So many seconds from the console's now, as RFC 3339."""
        return rfc3339(self.now + timedelta(seconds=seconds))

    def put(self, *records: Record, late: float = 0) -> None:
        """Bring in records, each received so many seconds after it was made; returns once they are
        shown.
        """
        self._deliver(
            [
                parse_record(
                    record.body,
                    source="web",
                    received_at=datetime.fromisoformat(record.time).timestamp() + late,
                )
                for record in records
            ]
        )

    def takes_commands(self, vm: FakeVm) -> None:
        """Let a VM say that it can be asked to approve."""
        status = parse_status(
            vm.status(commands=True, time=self.moment(0)),
            vm_id=vm.vm_id,
            site="default",
            source="web",
            received_at=self.now.timestamp(),
        )
        self._deliver([status])

    def _deliver(self, items: list[IncomingMessage]) -> None:
        stored = threading.Event()

        def on_end(good: bool) -> None:  # as Delivery.on_end
            if good:
                stored.set()

        delivery = SourceBatch(source="web", items=items, on_end=on_end)
        self.console.writer.put(delivery)
        assert stored.wait(20)
        self.settle()

    def settle(self) -> None:
        """Wait until the open pages have been told what was committed."""
        feed = self.console.feed
        before = feed.reads

        def looked() -> bool:
            feed.wake()
            return feed.reads >= before + 2  # the first may have begun before

        eventually(looked, what="the change feed")

    def page(self, path: str = "/") -> str:
        """The page as a browser without JavaScript gets it."""
        answer = self.http.get(self.url + path, timeout=20)
        assert answer.status_code == 200, answer.text
        return answer.text


def fleet_of_all_states(stage: ConsoleStage) -> dict[str, FakeVm]:
    """VMs in every contact and condition that an open stage can have, by name."""
    names = ("heard", "late", "silent", "stopped", "coming", "running", "named", "alone")
    vms = {
        name: FakeVm(name=f"{name}-1", site="dublin" if name < "m" else "zurich") for name in names
    }
    vms["retired"] = FakeVm(name="retired-1", scale_set="web")
    vms["peer"] = FakeVm(name="peer-1", scale_set="web")
    ago = {"late": 120, "silent": 600, "stopped": 300, "retired": 600}
    for name, vm in vms.items():
        stage.put(vm.heartbeat(now=stage.now - timedelta(seconds=ago.get(name, 5))))
    stage.put(vms["stopped"].stopped(now=stage.now - timedelta(seconds=290)))
    shared: dict[str, Any] = {
        "resources": ["coming-1", "named-1", "alone-1"],
        "not_before": stage.moment(872),
        "event_type": "Freeze",
        "impact": "pause",
        "description": "Host server is undergoing maintenance.",
        "now": stage.now - timedelta(seconds=28),
    }
    for name in ("coming", "named", "heard"):
        stage.put(vms[name].event("E-COMING", **shared))
    stage.takes_commands(vms["coming"])
    started = stage.now - timedelta(seconds=60)
    stage.put(vms["running"].event("E-RUNNING", transition="started", now=started))
    gone: dict[str, Any] = {
        "event_type": "Terminate",
        "impact": "delete",
        "resources": ["retired-1"],
    }
    # A deletion is believed of a VM that has heard of it.
    heard_of = stage.now - timedelta(seconds=ago["retired"])
    stage.put(vms["retired"].event("E-GONE", now=heard_of, **gone))
    for transition in ("started", "ended"):
        stage.put(vms["peer"].event("E-GONE", transition=transition, now=stage.now, **gone))
    return vms
