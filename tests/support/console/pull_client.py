"""A VM that asks the console for commands, as the bridge's HTTPS channel does, in its own words."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

import requests
from support.console.stage import ConsoleStage

from console.ingest.vm_secrets import pull_token, read_key
from wire.record import Record

PATH = "/pull/v1/commands"


class FakeDecisions:
    """Commands that a test puts there, as the channel sees those of the console."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[bytes]] = {}
        self.fetches: list[str] = []
        self.fetch = threading.Event()

    def commands_for(self, vm_id: str) -> list[tuple[str, bytes]]:
        """The commands of a VM."""
        return [(vm_id, token) for token in self.tokens.get(vm_id, [])]

    def sign(self, commands: list[tuple[str, bytes]]) -> list[bytes]:
        """Their tokens."""
        return [token for _, token in commands]

    def note_fetched(self, commands: list[tuple[str, bytes]]) -> None:
        """They have been given."""
        self.fetches.append(commands[0][0])
        self.fetch.set()


class PullClient:
    """Asks at a console's address; polls run in threads."""

    def __init__(self, url: str, key_file: Path) -> None:
        self.url = url
        self._key = read_key(key_file)
        self._threads = ThreadPoolExecutor(8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def token(self, vm_id: str, generation: int = 1) -> str:
        """The bearer token that `seb console enroll` prints for a VM."""
        return pull_token(self._key, vm_id, generation)

    def ask(
        self, vm_id: str, *, wait: float | str = 25, token: str | None = None
    ) -> requests.Response:
        """One poll, to its end."""
        return self.get({"vm": vm_id, "wait": wait}, token=token or self.token(vm_id))

    def get(
        self, params: object, *, token: str | None, headers: dict[str, str] | None = None
    ) -> requests.Response:
        """Any question to the address of the poll."""
        headers = dict(headers or {})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        with requests.Session() as session:
            session.trust_env = False
            return session.get(self.url + PATH, params=params, headers=headers, timeout=90)  # type: ignore[arg-type]

    def asking(
        self, vm_id: str, *, wait: float = 25, token: str | None = None
    ) -> Future[requests.Response]:
        """A poll that is under way."""
        return self._threads.submit(self.ask, vm_id, wait=wait, token=token)

    def post(self, body: bytes, *, token: str | None) -> requests.Response:
        """Bytes to the address of receipts."""
        headers = {"Content-Type": "application/cloudevents+json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        with requests.Session() as session:
            session.trust_env = False
            return session.post(
                f"{self.url}{PATH}/receipts", data=body, headers=headers, timeout=90
            )

    def receipt(self, record: Record) -> requests.Response:
        """A receipt, with the token of its VM."""
        return self.post(record.body, token=self.token(record.partition_key))


def client_of(stage: ConsoleStage) -> PullClient:
    """A client of a console in this process."""
    key_file = stage.console.settings.enroll_key_file
    assert key_file is not None
    return PullClient(stage.url, key_file)
