"""Windows: runs a program in a console of its own, where Ctrl-C reaches it and nobody else.

    python own_console.py PROGRAM ARGUMENTS

It presses Ctrl-C when a file `ctrl-c` appears in the working directory, Ctrl-Break for a file
`ctrl-break`. It makes a file `refused` if this Windows cannot press the key: Wine 8 has no
Ctrl-Break. For a file `end` it ends the program by force. It ends with the program's exit code.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from pathlib import Path

KEYS = {"ctrl-c": 0, "ctrl-break": 1}


def main() -> int:
    """Run the program until it ends."""
    windows = ctypes.windll.kernel32  # type: ignore[attr-defined]
    windows.FreeConsole()
    windows.AllocConsole()
    for name in ("SIGINT", "SIGBREAK"):  # the keys reach every program of the console
        signal.signal(getattr(signal, name), lambda *_: None)
    program = subprocess.Popen(sys.argv[1:])
    pressed: set[str] = set()
    while program.poll() is None:
        for name in KEYS.keys() - pressed:
            if Path(name).exists():
                if not windows.GenerateConsoleCtrlEvent(KEYS[name], 0):
                    Path("refused").touch()
                pressed.add(name)
        if Path("end").exists():
            program.kill()
        time.sleep(0.05)
    return program.returncode


if __name__ == "__main__":
    sys.exit(main())
