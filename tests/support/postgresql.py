"""A real PostgreSQL on a free loopback port, with its data in a directory of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString, Self

import psycopg
import pytest
from support.eventually import eventually
from support.ports import free_port


def executable(name: str) -> str:
    """One of PostgreSQL's programs; Debian puts them where users do not look."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, versions)])
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed; `make tools` installs PostgreSQL")
    return found


class PostgreSql:
    """One server: its address and its data stay the same over `stop` and `start`."""

    def __init__(self, *, is_durable: bool = True) -> None:
        """`is_durable`: whether a commit waits for the disk, so that it outlives the machine."""
        self._waits_for_disk = "on" if is_durable else "off"
        # Not in pytest's own directory: that is root's.
        self.directory = Path(tempfile.mkdtemp(prefix="seb-postgresql-"))
        self._user = "postgres" if hasattr(os, "geteuid") and os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self.directory, self._user)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        # As itself: PostgreSQL refuses to be root.
        self._options: dict[str, Any] = {"cwd": self.directory}
        if self._user is not None:
            self._options |= {"user": self._user, "group": self._user}
        command = [executable("initdb"), "-D", str(self._data), "-U", "seb", "-A", "trust"]
        self._run(*command, "-E", "UTF8", "--no-sync")

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def start(self) -> None:
        """Start, or start again; returns once it answers."""
        command = [executable("postgres"), "-D", str(self._data), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1"]
        command += ["-c", f"unix_socket_directories={self.directory}"]
        command += ["-c", f"fsync={self._waits_for_disk}"]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._options)
        eventually(self._answers, what=f"PostgreSQL\n{self.log}", timeout=30)

    @property
    def log(self) -> str:
        """What it has logged."""
        return (self.directory / "log").read_text(errors="replace")

    def _answers(self) -> bool:
        try:
            psycopg.connect(self._url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _url(self, name: str) -> str:
        return f"postgresql://seb@127.0.0.1:{self.port}/{name}"

    def database(self, name: str, *, template: str = "template1") -> str:
        """The URL of a new database, a copy of the template; PostgreSQL's own one is empty."""
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self._url(name)

    def execute(self, url: str, statement: LiteralString) -> None:
        """Change what a database holds."""
        with psycopg.connect(url) as connection:
            connection.execute(statement)

    def stop(self) -> None:
        """Shut down at once; every connection is cut."""
        if self._process is not None:
            self._process.send_signal(2)  # SIGINT: fast shutdown
            self._process.wait(30)
            self._process = None

    def copy(self) -> None:
        """Copy its data as they are now; it is stopped."""
        self._run("cp", "-a", str(self._data), str(self.directory / "copy"))

    def put_back(self) -> None:
        """Put the copy in the place of its data; it is stopped."""
        shutil.rmtree(self._data)
        (self.directory / "copy").rename(self._data)

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, **self._options)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def served() -> Iterator[PostgreSql]:
    """One running server; skips the test where PostgreSQL is not installed."""
    try:
        server = PostgreSql(is_durable=False)  # tests end processes, and no machines
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with server:
        yield server
