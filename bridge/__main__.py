"""The command `seb`, also as `python -m bridge`; ends a run that is stopped while it loads."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the command. Until a run has begun, SIGTERM and Ctrl-C end the process with success: to
    load what a run needs takes some tenths of a second, and a service manager that stops it
    meanwhile would otherwise see it killed.
    """
    if "run" in sys.argv[1:3] and "--once" not in sys.argv:
        for name in ("SIGTERM", "SIGINT", "SIGBREAK"):
            if number := getattr(signal, name, None):
                # Not an exception: in a callback that Python runs at this moment it would be lost.
                signal.signal(number, lambda *_: os._exit(0))
    from bridge import cli  # noqa: PLC0415  # this is what takes long

    cli.main()


if __name__ == "__main__":
    main()
