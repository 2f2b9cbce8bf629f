"""`seb` as a real process, with a clean environment and its output read as it comes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import pytest
from support.patience import PATIENCE

SEB = (sys.executable, "-m", "bridge")
# Discard: nobody listens there, and it is not the real address.
NOWHERE = "http://127.0.0.1:9"
_KEPT = ("PATH", "PYTHONPATH", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "COVERAGE_PROCESS_START")


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line of standard output, and when it came (monotonic seconds)."""

    text: bytes
    time: float

    def json(self) -> Any:
        return json.loads(self.text)


def clean_environment(home: Path, env: Mapping[str, str]) -> dict[str, str]:
    """What a fresh machine would have, with our variables and an IMDS on loopback."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    ours = {
        "HOME": str(home),
        "SEB_IMDS__URL": NOWHERE,
        "SEB_HTTP__LISTEN": "",  # many bridges run at once; a test that wants the server names it
        "PYTHONWARNINGS": "default",
    }
    made = {**kept, **ours, **env}
    if "169.254" in made["SEB_IMDS__URL"]:
        raise ValueError("a test must not ask the real metadata address")
    return made


def fast(imds_url: str, home: Path, **more: str) -> dict[str, str]:
    """The variables of a bridge that polls ten times a second, keeps its state below `home`, and
    sends no heartbeats.
    """
    return {
        "SEB_IMDS__URL": imds_url,
        "SEB_STATE_DIR": str(home / "state"),
        "SEB_POLL_INTERVAL": "0.1",
        "SEB_HEARTBEAT_INTERVAL": "0",
        **more,
    }


class BridgeProcess:
    """One process, from `start` to its end; a context manager that leaves none behind."""

    def __init__(
        self, *arguments: str, env: Mapping[str, str], home: Path, prefix: Sequence[str] = SEB
    ) -> None:
        self._command = [*prefix, *arguments]
        self._env = clean_environment(home, env)
        self._home = home
        self._changed = threading.Condition()
        self._out: list[OutputLine] = []
        self._err: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []
        self._open = 0
        """How many of its two outputs have not come to their end."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            self._command,
            env=self._env,
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._read(
            self._process.stdout, lambda line: self._out.append(OutputLine(line, time.monotonic()))
        )
        self._read(self._process.stderr, lambda line: self._err.append(_text(line)))

    def end(self) -> None:
        """Kill it where it still runs, and take in what is left to read."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(PATIENCE)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def send(self, number: int) -> None:
        """Send a signal to it and to nobody else."""
        os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end; skips the test where a process cannot be asked."""
        if sys.platform == "win32":
            pytest.skip("Windows has no such request; tests/ground/windows presses Ctrl-C")
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """End it without a word, and wait until all that it wrote is read."""
        self.end()

    def wait(self, timeout: float = PATIENCE) -> int:
        """Its exit code, once it has ended. Raises `subprocess.TimeoutExpired`."""
        assert self._process is not None
        code = self._process.wait(timeout)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def stop(self, timeout: float = PATIENCE) -> int:
        """Ask it to end; its exit code."""
        self.terminate()
        return self.wait(timeout)

    # What it said.

    @property
    def output(self) -> list[OutputLine]:
        """Standard output so far."""
        with self._changed:
            return list(self._out)

    @property
    def records(self) -> list[dict[str, Any]]:
        """Standard output so far, as JSON lines."""
        return [line.json() for line in self.output]

    @property
    def errors(self) -> str:
        """Standard error so far."""
        with self._changed:
            return "".join(self._err)

    def logs(self, action: str | None = None) -> list[dict[str, Any]]:
        """The log lines so far (SEB_LOG__FORMAT is json where no terminal is)."""
        lines = [json.loads(line) for line in self.errors.splitlines() if line.startswith("{")]
        return [line for line in lines if action in (None, line["action"])]

    def wait_for_log(
        self, action: str, *, count: int = 1, timeout: float = PATIENCE
    ) -> dict[str, Any]:
        """The `count`th log line of that action. Raises `AssertionError` with all that was said."""
        self.wait_until(lambda: len(self.logs(action)) >= count, f"{action} x{count}", timeout)
        return self.logs(action)[count - 1]

    def wait_for_records(
        self, count: int, *, types: str = "seb.", timeout: float = PATIENCE
    ) -> list[dict[str, Any]]:
        """Records of types that begin so on standard output, once there are so many."""

        def found() -> list[dict[str, Any]]:
            return [each for each in self.records if each["type"].startswith(types)]

        self.wait_until(lambda: len(found()) >= count, f"{count} records of {types}", timeout)
        return found()

    def wait_until(
        self, done: Callable[[], bool], what: str = "it", timeout: float = PATIENCE
    ) -> None:
        """Wait until something holds that its output changes; no longer than it lives.

        Raises `AssertionError` with all that it said.
        """
        with self._changed:
            self._changed.wait_for(lambda: done() or not self._open, timeout)
            if not done():
                raise AssertionError(f"{what} did not come; standard error:\n{self.errors}")

    def _read(self, stream: IO[bytes] | None, keep: Callable[[bytes], None]) -> None:
        assert stream is not None

        def read() -> None:
            for line in stream:
                with self._changed:
                    keep(line)
                    self._changed.notify_all()
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

        self._open += 1
        reader = threading.Thread(target=read, name="bridge-output", daemon=True)
        self._readers.append(reader)
        reader.start()


def written(path: Path) -> list[dict[str, Any]]:
    """The records that a sink has written into a file so far."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


@dataclass(frozen=True, slots=True)
class EndedCommand:
    """A command that has ended."""

    code: int
    out: str
    err: str


def run_seb(
    *arguments: str,
    home: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
    prefix: Sequence[str] = SEB,
) -> EndedCommand:
    """Run a command to its end."""
    with BridgeProcess(*arguments, env=env or {}, home=home, prefix=prefix) as process:
        code = process.wait(timeout)
        out = _text(b"".join(line.text for line in process.output))
        return EndedCommand(code, out, process.errors)


def _text(said: bytes) -> str:
    """What a person sees; Windows ends its lines with two characters."""
    return said.decode().replace("\r\n", "\n")
