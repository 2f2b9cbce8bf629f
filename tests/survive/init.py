"""The first process of a simulated VM: it starts, stops and adopts everything that runs there.

Run as `python init.py DIRECTORY`, where `units.json` names what there is to start. It needs nothing
but the standard library. It answers requests, a line of JSON each, on the socket `control` in the
directory: `{"do": "start" | "stop" | "is-active", "unit": NAME}` gets `{"ok": true | false}`.
"""

import contextlib
import ctypes
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
STOP_SECONDS = 60.0


class Units:
    """What this VM can run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def _definition(self, name: str) -> dict[str, Any]:
        return json.loads((self._directory / "units.json").read_text())[name]

    def start_enabled(self) -> None:
        """Start what a boot starts."""
        for name, unit in json.loads((self._directory / "units.json").read_text()).items():
            if unit["enabled"]:
                self.start(name)

    def start(self, name: str) -> bool:
        """Start a unit; True if it runs already."""
        with self._lock:
            if self.is_active(name):
                return True
            unit = self._definition(name)
            with (self._directory / f"{name}.log").open("ab") as log:
                self._running[name] = subprocess.Popen(
                    unit["command"],
                    env={**os.environ, **unit["env"]},
                    cwd=unit["cwd"],
                    user=unit["user"],
                    extra_groups=[] if unit["user"] else None,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            return True

    def stop(self, name: str) -> bool:
        """Ask a unit to end, and wait until it has; then end what it left behind."""
        process = self._running.get(name)
        if process is None:
            return True
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self.is_active(name):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        return True

    def is_active(self, name: str) -> bool:
        """Whether its process runs."""
        process = self._running.get(name)
        return process is not None and process.poll() is None

    def tend(self, parent: int) -> None:
        """Reap orphans for as long as the parent lives; then end everything, and this."""
        while os.getppid() == parent:
            time.sleep(1)
            ours = {process.pid for process in self._running.values()}
            for child in _children() - ours:  # those of ours belong to their Popen
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, os.WNOHANG)
        while children := _children():  # the children of a killed process become ours
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        os._exit(0)


def _children() -> set[int]:
    lists = Path("/proc/self/task").glob("*/children")
    return {int(each) for path in lists for each in path.read_text().split()}


def main() -> None:
    """Run until killed."""
    ctypes.CDLL(None, use_errno=True).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    directory = Path(sys.argv[1])
    units = Units(directory)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = json.loads(self.rfile.readline())
            do = {"start": units.start, "stop": units.stop, "is-active": units.is_active}
            self.wfile.write(
                json.dumps({"ok": do[request["do"]](request["unit"])}).encode() + b"\n"
            )

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    path = directory / "control"
    path.unlink(missing_ok=True)
    with Server(str(path), Handler) as server:
        path.chmod(0o777)
        units.start_enabled()
        threading.Thread(target=units.tend, args=(os.getppid(),), daemon=True).start()
        server.serve_forever()


if __name__ == "__main__":
    main()
