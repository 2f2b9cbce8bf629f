"""A real Mosquitto on a free loopback port, and subscribers that see what it was given."""

import base64
import hashlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from support.mqtt.subscriber import Subscriber
from support.patience import PATIENCE
from support.ports import free_port
from support.sinks.throwaway_ca import Pair


def executable() -> str:
    """Where Mosquitto is; Debian puts it where users do not look."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which("mosquitto", path=path)
    if found is None and sys.platform == "win32":
        pytest.skip("Mosquitto is not installed on this Windows")
    if found is None:
        raise FileNotFoundError("mosquitto is not installed; `make test` installs it")
    return found


class Mosquitto:
    """One broker: its address stays the same over `stop` and `start`, and so does its store.

    `users` maps names to passwords (none: everybody may connect); `acl` is the lines of an ACL
    file; `tls` is the broker's certificate, `client_ca` makes it ask clients for one and takes
    their common name as the user; `extra` is further lines of the configuration.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        directory: Path,
        *,
        users: Mapping[str, str] | None = None,
        acl: Sequence[str] | None = None,
        tls: Pair | None = None,
        client_ca: Path | None = None,
        extra: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.users = dict(users or {})
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        lines = ["user root", "persistence true", f"persistence_location {directory}/"]
        # Retained and queued messages are for tests to see, not for Mosquitto to limit.
        lines += ["max_queued_messages 0", "log_dest stderr", "log_type all"]
        # Nagle's algorithm in the broker would hide how fast a sink is.
        lines += ["set_tcp_nodelay true"]
        lines += self._access(acl)
        lines += [f"listener {self.port} {self.host}"]
        if tls is not None:
            lines += [f"certfile {tls.cert}", f"keyfile {tls.key}"]
        if client_ca is not None:
            lines += [f"cafile {client_ca}", "require_certificate true"]
            lines += ["use_identity_as_username true"]
        self._config = directory / "mosquitto.conf"
        lines += extra
        self._config.write_text("\n".join([*lines, ""]))
        listeners = (line.split() for line in lines if line.startswith("listener "))
        self._ports = [int(words[1]) for words in listeners]

    def _access(self, acl: Sequence[str] | None) -> list[str]:
        lines = [f"allow_anonymous {'false' if self.users else 'true'}"]
        if self.users:
            passwords = self.directory / "passwords"
            hashed = [_password_line(name, word) for name, word in self.users.items()]
            passwords.write_text("\n".join([*hashed, ""]))
            passwords.chmod(0o600)
            lines += [f"password_file {passwords}"]
        if acl is not None:
            rules = self.directory / "acl"
            rules.write_text("\n".join([*acl, ""]))
            rules.chmod(0o600)
            lines += [f"acl_file {rules}"]
        return lines

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None else None

    @property
    def log(self) -> str:
        """What the broker has logged, over all its runs."""
        return (self.directory / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start, or start again; returns once it listens."""
        if self._process is not None:
            return
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            # While it was away, some connection may have got its port for a moment.
            if self._process is None or self._process.poll() is not None:
                with (self.directory / "log").open("ab") as log:
                    command = [executable(), "-c", str(self._config)]
                    self._process = subprocess.Popen(command, stderr=log, stdout=log)
            try:
                for port in self._ports:
                    socket.create_connection((self.host, port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                if self._process.poll() is None:
                    return
        self.kill()
        raise RuntimeError(f"mosquitto does not listen on port {self.port}:\n{self.log}")

    def stop(self) -> None:
        """Shut down in order: clients are told, the store is saved."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                # It saves first, perhaps on a slow disk; or it missed the signal.
                self._process.terminate()
                self._process.wait(PATIENCE)
            self._process = None

    def kill(self) -> None:
        """End without a word, and without saving."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @contextmanager
    def subscriber(
        self,
        *filters: str,
        username: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Iterator[Subscriber]:
        """A subscriber with a session that survives restarts of the broker.

        As the user of that name, or as the first one where there are users.
        """
        user = username or next(iter(self.users), None)
        made = Subscriber(
            host=self.host,
            port=self.port,
            filters=filters,
            username=user,
            password=self.users.get(user) if user is not None else None,
            tls=tls,
        )
        try:
            yield made
        finally:
            made.close()


def _password_line(name: str, password: str) -> str:
    # The format of mosquitto_passwd: $7$ is PBKDF2 with SHA-512, then rounds, salt and hash.
    salt = os.urandom(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
    return f"{name}:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
