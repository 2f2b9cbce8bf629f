"""A client that writes and reads all the time, as the users of a service do.

`python -m tests.survive.load` reads its settings as a line of JSON from standard input, and works
until standard input ends. Then it waits for a line more, reads everything back, and prints what it
found, as JSON. It is a process of its own, so that nothing which plays Azure delays it.
"""

import base64
import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol

PAUSE_SECONDS = 0.02
"""Between two requests of one client."""
REQUEST_SECONDS = 2.0
"""How long a client waits for an answer before it calls the request failed."""
JOB_SECONDS = 20
"""The same for a job, which may have to wait for a free node."""

BEGIN_SECONDS = 30
"""How long the first write may take."""


class Client(Protocol):
    """A user's connection to the service; every method may raise anything when it fails."""

    def write(self, number: int) -> None:
        """Store a number; returning means that the service has acknowledged it."""

    def read(self) -> None:
        """Read something that was stored."""

    def everything(self) -> set[int]:
        """Every number that the service holds."""


class EtcdClient:
    """Over etcd's JSON gateway, in turns at every member, as its Go client does.

    A member that refuses a connection is left alone for a second, and the request, which was never
    sent, goes to the next one: that is what gRPC does.
    """

    def __init__(self, urls: list[str], patience: float = REQUEST_SECONDS) -> None:
        import urllib3  # noqa: PLC0415  # each client needs a library of its own

        self._error = urllib3.exceptions.NewConnectionError
        timeout = urllib3.Timeout(connect=1.0, read=patience)
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False)
        self._urls = itertools.cycle(urls)
        self._count = len(urls)
        self._refused: dict[str, float] = {}

    def _call(self, path: str, body: dict[str, Any]) -> Any:
        for _ in range(2 * self._count):
            url = next(self._urls)
            if time.monotonic() - self._refused.get(url, -1) < 1:
                continue
            try:
                answer = self._pool.request("POST", f"{url}/v3/kv/{path}", json=body)
            except self._error:
                self._refused[url] = time.monotonic()
                continue
            if answer.status != 200:
                raise OSError(answer.data.decode())
            return answer.json()
        raise OSError("no member accepts connections")

    def write(self, number: int) -> None:
        self._call("put", {"key": _b64(f"n/{number}"), "value": _b64(str(number))})

    def read(self) -> None:
        self._call("range", {"key": _b64("n/1")})

    def everything(self) -> set[int]:
        body = {"key": _b64("n/"), "range_end": _b64("n0"), "keys_only": True}
        found = self._call("range", body).get("kvs", [])
        return {int(base64.b64decode(each["key"])[2:]) for each in found}


class PostgresqlClient:
    """A connection string with every member; it finds the one that takes writes."""

    def __init__(self, dsn: str) -> None:
        import psycopg  # noqa: PLC0415

        self._connect = lambda: psycopg.connect(dsn, autocommit=True)
        self._connection: Any = None

    def _execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            if self._connection is None:
                self._connection = self._connect()
            cursor = self._connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []
        except Exception:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            raise

    def write(self, number: int) -> None:
        self._execute("INSERT INTO n VALUES (%s) ON CONFLICT DO NOTHING", number)

    def read(self) -> None:
        self._execute("SELECT n FROM n LIMIT 1")

    def everything(self) -> set[int]:
        return {row[0] for row in self._execute("SELECT n FROM n")}


class RedisClient:
    """Asks the Sentinels for the master, again after each failure."""

    def __init__(self, ports: list[int], name: str) -> None:
        import redis  # noqa: PLC0415

        sentinels = [("127.0.0.1", port) for port in ports]
        found = redis.Sentinel(sentinels, socket_timeout=0.5)
        self._master = found.master_for(name, socket_timeout=REQUEST_SECONDS)

    def write(self, number: int) -> None:
        self._master.sadd("n", number)

    def read(self) -> None:
        self._master.scard("n")

    def everything(self) -> set[int]:
        return {int(each) for each in self._master.smembers("n")}


class WebClient:
    """Keeps its connection to the load balancer, and opens another one after a failure."""

    def __init__(self, url: str) -> None:
        import urllib3  # noqa: PLC0415

        timeout = urllib3.Timeout(connect=1.0, read=REQUEST_SECONDS)
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False)
        self._url = url

    def _call(self, method: str, path: str, body: bytes = b"") -> bytes:
        answer = self._pool.request(method, f"{self._url}{path}", body=body)
        if answer.status != 200:
            raise OSError(f"{answer.status} from {path}")
        return answer.data

    def write(self, number: int) -> None:
        self._call("POST", "/n", str(number).encode())

    def read(self) -> None:
        self._call("GET", "/")

    def everything(self) -> set[int]:
        return {int(each) for each in self._call("GET", "/all").split()}


class RabbitMqClient:
    """Publishes with confirmations; tries every node in turn when it has to connect again."""

    def __init__(self, ports: list[int]) -> None:
        import pika  # noqa: PLC0415

        self._pika = pika
        # Each try another node first, as its users' connection strings have it.
        self._ports = itertools.cycle(ports)
        self._count = len(ports)
        self._channel: Any = None

    def _connected(self) -> Any:
        if self._channel is None:
            place = self._pika.ConnectionParameters(
                "127.0.0.1",
                next(self._ports),
                socket_timeout=REQUEST_SECONDS,
                stack_timeout=REQUEST_SECONDS,
            )
            self._channel = self._pika.BlockingConnection(place).channel()
            self._channel.confirm_delivery()
        return self._channel

    def _connected_anywhere(self) -> Any:
        for _ in range(self._count - 1):
            with contextlib.suppress(self._pika.exceptions.AMQPError):
                return self._connected()
        return self._connected()

    def _declare(self, *, passive: bool) -> Any:
        arguments = {"x-queue-type": "quorum"}
        return self._connected().queue_declare(
            "n", passive=passive, durable=True, arguments=arguments
        )

    def _forget(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None and channel.connection.is_open:
            channel.connection.close()

    def write(self, number: int) -> None:
        try:
            if number == 0:
                self._declare(passive=False)
            persistent = self._pika.BasicProperties(delivery_mode=2)
            self._connected().basic_publish(
                "", "n", str(number).encode(), persistent, mandatory=True
            )
        except Exception:
            self._forget()
            raise

    def read(self) -> None:
        try:
            self._declare(passive=True)
        except Exception:
            self._forget()
            raise

    def everything(self) -> set[int]:
        found = set()
        channel = self._connected_anywhere()
        for method, _, body in channel.consume("n", auto_ack=True, inactivity_timeout=3):
            if method is None:
                break
            found.add(int(body))
        return found


class SlurmClient:
    """A job for each number; its user waits until it has ended, and gives up a long one."""

    def __init__(self, conf: str, results: str) -> None:
        self._env = {**os.environ, "SLURM_CONF": conf}
        self._results = Path(results)

    def _run(self, *command: str) -> None:
        limit = ["timeout", "-k", "2", str(JOB_SECONDS)]
        done = subprocess.run(
            [*limit, *command], env=self._env, check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise OSError(done.stderr.strip().splitlines()[-1:] or done.returncode)

    def write(self, number: int) -> None:
        if number == 0:  # a job that its node did not survive, and that Slurm still waits for
            self._run("scancel", "--state=RUNNING")
        self._run("srun", "-Q", "-n1", "sh", "-c", f"sleep 0.2; echo {number} >>{self._results}")

    def read(self) -> None:
        self._run("squeue", "-h")

    def everything(self) -> set[int]:
        return {int(each) for each in self._results.read_text().split()}


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


KINDS: dict[str, Any] = {
    "etcd": EtcdClient,
    "postgresql": PostgresqlClient,
    "redis": RedisClient,
    "web": WebClient,
    "rabbitmq": RabbitMqClient,
    "slurm": SlurmClient,
}


def connect(settings: dict[str, Any]) -> Client:
    """The client of a kind."""
    given = dict(settings)
    return KINDS[given.pop("kind")](**given)


def begin(settings: dict[str, Any]) -> None:
    """The first write, which a user repeats as well: the member that is asked may be away."""
    client, deadline = connect(settings), time.monotonic() + BEGIN_SECONDS
    while True:
        try:
            return client.write(0)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)


class Work:
    """One thread that repeats one request, and what became of it."""

    def __init__(self, settings: dict[str, Any], name: str) -> None:
        self._client = connect(settings)
        self._name = name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.failed = 0
        self.done = 0
        self.longest_gap = 0.0
        self.acknowledged: set[int] = set()
        self.reasons: dict[str, int] = {}
        self._numbers = itertools.count(time.time_ns() // 1000)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a request that is under way may end first."""
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(PAUSE_SECONDS):
            number = next(self._numbers)
            try:
                self._client.write(number) if self._name == "write" else self._client.read()
            except Exception as error:
                self.failed += 1
                reason = f"{type(error).__name__}: {error}"[:120]
                self.reasons[reason] = self.reasons.get(reason, 0) + 1
            else:
                now = time.monotonic()
                self.longest_gap = max(self.longest_gap, now - last)
                last = now
                self.done += 1
                if self._name == "write":
                    self.acknowledged.add(number)
        self.longest_gap = max(self.longest_gap, time.monotonic() - last)


def main() -> None:
    """Work until standard input says that it is enough, then count."""
    settings = json.loads(sys.stdin.readline())
    begin(settings)
    works = [Work(settings, name) for name in ("write", "read")]
    for work in works:
        work.start()
    print("begun", flush=True)
    sys.stdin.readline()
    for work in works:
        work.stop()
    written, read = works
    lost = written.acknowledged - connect(settings).everything()
    found = {
        "writes": written.done,
        "reads": read.done,
        "failed": written.failed + read.failed,
        "gap_s": round(written.longest_gap, 2),
        "lost": len(lost),
        "reasons": {**read.reasons, **written.reasons},
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
