"""Many VMs in one process, each with a poll that the console holds.

`python -m tests.benchmarks.held_polls_vms URL KEY_FILE VMS [record]`: each VM sends a heartbeat
first if `record` is given, and asks for commands until the process is ended. It prints how often
each thing has happened, as a line of JSON a second.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

from support.console.records import FakeVm

from console.ingest.vm_secrets import pull_token, read_key, webhook_secret
from sinks.kinds.webhook.signature import SharedSecret, signature_headers

_AT_ONCE: Final = 500
"""Connections that are opened at the same time."""
_RECORDS_AT_ONCE: Final = 16


class _Poll(asyncio.Protocol):
    """One VM's connection: asks again as soon as it is answered, as a bridge does."""

    def __init__(self, request: bytes, seen: Counter[str]) -> None:
        self._request = request
        self._seen = seen
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._seen["asked"] += 1
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        status = data[9:12].decode()
        self._seen[status] += 1
        if status in ("200", "204") and self._transport is not None:
            self._transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._seen["lost"] += 1


async def _hold(url: str, key: bytes, vm_ids: list[str], seen: Counter[str]) -> None:
    parts = urlsplit(url)
    loop, gate = asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)

    async def one(vm_id: str) -> None:
        request = (
            f"GET /pull/v1/commands?vm={vm_id}&wait=25 HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Authorization: Bearer {pull_token(key, vm_id)}\r\nAccept: application/json\r\n"
            "Accept-Encoding: identity\r\nUser-Agent: scheduled-events-bridge/1.0.0\r\n\r\n"
        ).encode()
        async with gate:
            try:
                await loop.create_connection(
                    lambda: _Poll(request, seen), parts.hostname, parts.port
                )
            except OSError:
                seen["refused"] += 1

    await asyncio.gather(*(one(vm_id) for vm_id in vm_ids))


async def _record(url: str, key: bytes, vms: list[FakeVm], seen: Counter[str]) -> None:
    """One heartbeat of each VM, over a few connections."""
    parts = urlsplit(url)
    waiting = iter(vms)

    async def some() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for vm in waiting:
            body = vm.heartbeat().body
            secret = SharedSecret(webhook_secret(key, vm.vm_id))
            signed = signature_headers(
                [secret], message_id="r", timestamp=int(time.time()), body=body
            )
            head = [
                "POST /ingest/v1/records HTTP/1.1",
                f"Host: {parts.netloc}",
                f"Content-Length: {len(body)}",
                *(f"{name}: {value}" for name, value in signed.items()),
            ]
            writer.write("\r\n".join([*head, "", ""]).encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            seen[f"record {answer[9:12].decode()}"] += 1
        writer.close()

    await asyncio.gather(*(some() for _ in range(_RECORDS_AT_ONCE)))


async def main() -> None:
    """Play the VMs until the process is ended."""
    url, key_file, count = sys.argv[1:4]
    key = read_key(Path(key_file))
    vms = [
        FakeVm(name=f"vm-{n}", vm_id=str(uuid5(NAMESPACE_URL, f"held-poll-{n}")))
        for n in range(int(count))
    ]
    seen: Counter[str] = Counter()
    if "record" in sys.argv[4:]:
        await _record(url, key, vms, seen)
    await _hold(url, key, [vm.vm_id for vm in vms], seen)
    while True:
        print(json.dumps(seen), flush=True)
        await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(main())
