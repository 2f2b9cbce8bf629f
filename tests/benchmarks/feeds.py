"""What feeds a console while it is measured, as programs: a hub with a backlog, and posting VMs.

`python -m tests.benchmarks.feeds hub FILE` prints its port; `… post PORT FILE` posts each line of a
file to a webhook, over a connection for each VM. A line is a topic, a space and a record; to post
it, it is signed by the secret of its VM.
"""

import socket
import sys
import threading
import time
from pathlib import Path
from typing import Final

from support.amqp.message import PARTITION_KEY, HubMessage
from support.amqp.server import EventHubServer

from console.ingest.vm_secrets import read_key, webhook_secret
from sinks.kinds.webhook.signature import SharedSecret, signature_headers

HUB: Final = "fleet"


def hub(file: str) -> None:
    """A hub that holds every record of a file, until standard input ends."""
    server = EventHubServer(partitions=2)
    server.start()
    messages = [
        HubMessage(body=body, annotations={PARTITION_KEY: topic.split(b"/")[4].decode()})
        for topic, _, body in (line.partition(b" ") for line in _lines(file))
    ]
    server.append(HUB, messages)
    print(server.port, flush=True)
    sys.stdin.read()


def post(port: str, file: str, key_file: str) -> None:
    """Post every record of a file, as bridges do: each VM over a connection of its own, in order,
    and the next record once the one before it is answered.
    """
    key = read_key(Path(key_file)) if key_file != "-" else b"k" * 32
    requests: dict[bytes, list[bytes]] = {}
    for line in _lines(file):
        requests.setdefault(line.partition(b" ")[0], []).append(_request(line, key))
    threads = [threading.Thread(target=_post, args=(int(port), each)) for each in requests.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _lines(file: str) -> list[bytes]:
    return Path(file).read_bytes().splitlines()


def _request(line: bytes, key: bytes) -> bytes:
    topic, _, body = line.partition(b" ")
    vm_id = topic.split(b"/")[4].decode()
    secret = SharedSecret(webhook_secret(key, vm_id))
    signed = signature_headers([secret], message_id="r", timestamp=int(time.time()), body=body)
    headers = {"Host": "127.0.0.1", "Content-Length": str(len(body)), **signed}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /ingest/v1/records HTTP/1.1\r\n{head}\r\n".encode() + body


def _post(port: int, requests: list[bytes]) -> None:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    for request in requests:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            part = connection.recv(4096)
            if not part:
                return
            answer += part
        if not answer.startswith(b"HTTP/1.1 204"):
            raise RuntimeError(answer.decode(errors="replace"))
    connection.close()


if __name__ == "__main__":
    {"hub": hub, "post": post}[sys.argv[1]](*sys.argv[2:])
