"""A real console in a process of its own, and what a client and a VM say to it."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import requests
from support.console import forked_process
from support.eventually import eventually
from support.ports import free_port

from console.audit.audit_log import all_rows
from console.audit.chain import as_json
from console.config.settings import ConsoleSettings
from console.db.connection.opening import Database, database_url
from console.ingest.vm_secrets import read_key, webhook_secret
from sinks.kinds.webhook.signature import SharedSecret, signature_headers
from wire.record import Record


class ConsoleProcess:
    """`seb console run` with a state directory and a webhook source called web."""

    def __init__(self, directory: Path, **settings: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key_file = directory / "enroll.key"
        if not self.key_file.exists():
            self.key_file.write_text(base64.b64encode(os.urandom(32)).decode())
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SEB_")}
        self.environ = clean | {
            "SEB_CONSOLE_STATE_DIR": str(directory),
            "SEB_CONSOLE_LISTEN": f"127.0.0.1:{self.port}",
            "SEB_CONSOLE_SOURCE__WEB__KIND": "webhook",
            "SEB_CONSOLE_ENROLL_KEY_FILE": str(self.key_file),
            **{f"SEB_CONSOLE_{name}": value for name, value in settings.items()},
        }
        self.begin: Callable[..., forked_process.ForkedProcess | subprocess.Popen[bytes]] = (
            forked_process.start
        )
        self.process: forked_process.ForkedProcess | subprocess.Popen[bytes] | None = None
        self.http = requests.Session()
        self.http.trust_env = False

    def command(self, *words: str) -> list[str]:
        """The command line of `seb console`."""
        return [sys.executable, "-m", "bridge", "console", *words]

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `seb console` that is pointed at this console."""
        env = {**self.environ, "SEB_CONSOLE_URL": self.url, **environ}
        return forked_process.finished(["console", *words], env=env)

    def token(self, name: str, *words: str, role: str = "viewer", days: str = "1") -> str:
        """A new bearer token, made by the command."""
        done = self.run("token", "add", name, "--role", role, "--days", days, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def audit(self, action: str) -> list[dict[str, Any]]:
        """The audit's rows of one action, as the database has them."""
        database = Database(database_url(ConsoleSettings(state_dir=self.directory)))
        try:
            rows = [as_json(row) for row in all_rows(database.reading)]
        finally:
            database.close()
        return [row for row in rows if row["action"] == action]

    def start(self, *, ready: bool = True) -> Self:
        """Start, or start again; returns once it answers."""
        log = self.directory / "log"
        log.touch()
        self.process = self.begin(["console", "run"], env=self.environ, out=log, err=log)
        path = "/readyz" if ready else "/healthz"
        eventually(lambda: self._answers(path), what=f"{path}\n{self.log}", timeout=90)
        return self

    def _answers(self, path: str) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        try:
            return self.http.get(self.url + path, timeout=2).status_code == 200
        except (requests.ConnectionError, requests.Timeout):
            return False

    @property
    def log(self) -> str:
        """What it has logged, over all its runs."""
        return (self.directory / "log").read_text(errors="replace")

    def stop(self) -> int:
        """End it in good order; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        self.process = None
        return code

    def kill(self) -> None:
        """End it without a word."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)
            self.process = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:  # it would run on after the tests
            self.kill()
            raise

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.http.close()

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of an API path."""
        response = self.http.get(f"{self.url}/api/v1/{path}", params=params, timeout=10)
        assert response.status_code == 200, response.text
        return response.json()

    def events(self, *, state: str = "open", **params: Any) -> dict[str, Any]:
        """The listed events by id."""
        items = self.get("events", state=state, **params)["items"]
        return {item["eventId"]: item for item in items}

    def vms(self, **params: Any) -> dict[str, Any]:
        """The listed VMs by name."""
        return {item["name"]: item for item in self.get("vms", **params)["items"]}

    def metric(self, name: str) -> float:
        """A number of /metrics that has no labels."""
        text = self.http.get(f"{self.url}/metrics", timeout=10).text
        return next(float(line.split()[1]) for line in text.splitlines() if line.split()[0] == name)

    def contacts(self) -> dict[str, str]:
        """How each VM is heard, by name."""
        return {name: item["contact"] for name, item in self.vms().items()}

    def post(
        self,
        record: Record,
        *,
        signed_for: str | None = None,
        skew: float = 0,
        generation: int = 1,
    ) -> requests.Response:
        """Send a record as the webhook sink of its VM would."""
        return self.post_body(
            record.body,
            vm_id=signed_for or record.partition_key,
            record_id=record.id,
            skew=skew,
            generation=generation,
        )

    def post_body(
        self, body: bytes, *, vm_id: str, record_id: str = "r", skew: float = 0, generation: int = 1
    ) -> requests.Response:
        """Send bytes, signed by the secret of a VM."""
        secret = SharedSecret(webhook_secret(read_key(self.key_file), vm_id, generation))
        headers = signature_headers(
            [secret], message_id=record_id, timestamp=int(time.time() + skew), body=body
        )
        headers["content-type"] = "application/cloudevents+json"
        address = f"{self.url}/ingest/v1/records"
        return self.http.post(address, data=body, headers=headers, timeout=20)
