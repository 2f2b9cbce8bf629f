"""A real bridge in its own process, for one simulated VM."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_END_SECONDS: Final = 10.0


class DemoBridge:
    """`seb run` with its own settings: no variable and no file of the user reaches it."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self._directory = directory
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, or start it again with its store."""
        self._directory.mkdir(exist_ok=True)
        clean = {k: v for k, v in os.environ.items() if not k.upper().startswith("SEB_")}
        frozen = getattr(sys, "frozen", False)
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, *([] if frozen else ["-m", "bridge"]), "run"],
                cwd=self._directory,
                env={**clean, "SEB_STATE_DIR": str(self._directory / "state"), **self._settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask_to_end(self) -> None:
        """Ask the process to end; `kill` makes sure."""
        if self._process is not None:
            self._process.terminate()

    def end(self) -> None:
        """Wait until the process has ended, or kill it."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
        self.kill()
